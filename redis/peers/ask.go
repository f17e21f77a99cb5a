package peers

import (
	"context"
	"crypto/rand"
	"time"
)

const (
	answersLife = 10 * time.Second // how long answers are kept for who asked
	lookEvery   = 20 * time.Millisecond
)

// answer answers the questions of peers, one after the other.
func (p *Peers) answer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-p.asked:
			p.cfg.Redis.Guard(func() { p.answerOne(ctx, n) })
		}
	}
}

func (p *Peers) answerOne(ctx context.Context, n news) {
	if p.cfg.Reply == nil {
		return
	}
	answer := p.cfg.Reply(n.Topic, n.Body)
	key := p.cfg.Answers(n.Question)
	_, err := p.ask(ctx, tellWithin, key, "HSET", key, p.id, answer)
	if err == nil {
		_, err = p.ask(ctx, tellWithin, key, "PEXPIRE", key, answersLife.Milliseconds())
	}
	if err != nil {
		p.cfg.OnError(err)
	}
}

// Ask asks all sidecars that live, and returns their answers by name, once all have answered or the context ends.
// missing are the names of those that did not.
func (p *Peers) Ask(
	ctx context.Context, topic string, body any,
) (answers map[string][]byte, missing []string, err error) {
	cards, err := p.Cards(ctx)
	if err != nil {
		return nil, nil, err
	}
	question := rand.Text()
	err = p.publish(ctx, news{Topic: topic, Question: question}, body)
	if err != nil {
		return nil, nil, err
	}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		answers, err = p.collect(ctx, p.cfg.Answers(question))
		missing = unanswered(cards, answers)
		if err != nil || len(missing) == 0 {
			return answers, missing, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return answers, missing, nil
		}
	}
}

// collect reads the answers that are there.
func (p *Peers) collect(ctx context.Context, key string) (map[string][]byte, error) {
	within := tellWithin
	if deadline, ok := ctx.Deadline(); ok { // the last look is after the context's end
		within = min(within, max(time.Until(deadline), lookEvery))
	}
	reply, err := p.ask(context.WithoutCancel(ctx), within, key, "HGETALL", key)
	if err != nil {
		return nil, err
	}
	answers := map[string][]byte{}
	pairs(reply, func(id, answer string) { answers[id] = []byte(answer) })
	return answers, nil
}

// unanswered are the names of the cards without an answer.
func unanswered(cards []Card, answers map[string][]byte) []string {
	var missing []string
	for _, c := range cards {
		if answers[c.ID] == nil {
			missing = append(missing, c.ID)
		}
	}
	return missing
}
