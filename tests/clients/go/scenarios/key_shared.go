package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func keyShared(topic string) any {
	mine := options(topic, pulsar.KeyShared)
	consumers := []pulsar.Consumer{subscribe(mine), subscribe(mine)}
	made := producer(pulsar.ProducerOptions{Topic: topic, BatcherBuilderType: pulsar.KeyBasedBatchBuilder})
	defer made.Close()
	for i := range 200 {
		made.SendAsync(context.Background(), &pulsar.ProducerMessage{
			Payload: []byte(strconv.Itoa(i)), Key: fmt.Sprintf("k%d", i%20),
		}, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
	}
	check(made.FlushWithCtx(context.Background()))
	count, isOrdered, used, most := 0, true, 0, 0
	last, places := map[string]int{}, map[string]map[int]bool{}
	for place, consumer := range consumers {
		before := count
		for message := receive(consumer, 2*time.Second); message != nil; message = receive(consumer, 2*time.Second) {
			number, err := strconv.Atoi(string(message.Payload()))
			check(err)
			key := message.Key()
			if previous, known := last[key]; known && previous >= number {
				isOrdered = false
			}
			last[key] = number
			if places[key] == nil {
				places[key] = map[int]bool{}
			}
			places[key][place] = true
			most = max(most, len(places[key]))
			check(consumer.Ack(message))
			count++
		}
		if count > before {
			used++
		}
		consumer.Close()
	}
	return []any{count, isOrdered, most, used}
}

func sticky(topic string) any {
	subscribeTo := func(first, last int) (pulsar.Consumer, error) {
		mine := options(topic, pulsar.KeyShared)
		policy, err := pulsar.NewKeySharedPolicySticky([]int{first, last})
		check(err)
		mine.KeySharedPolicy = policy
		return client.Subscribe(mine)
	}
	low, err := subscribeTo(0, 32767)
	check(err)
	defer low.Close()
	high, err := subscribeTo(32768, 65535)
	check(err)
	defer high.Close()
	refusal := "is taken"
	if third, err := subscribeTo(100, 200); err == nil {
		third.Close()
	} else if strings.Contains(err.Error(), "ConsumerAssignError") {
		refusal = "is refused"
	} else {
		refusal = err.Error()
	}
	made := producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	defer made.Close()
	for i := range 20 {
		_, err := made.Send(context.Background(), &pulsar.ProducerMessage{Key: fmt.Sprintf("k%d", i%10), Payload: []byte("m")})
		check(err)
	}
	seen := []any{}
	for _, consumer := range []pulsar.Consumer{low, high} {
		keys := map[string]bool{}
		for message := receive(consumer, 2*time.Second); message != nil; message = receive(consumer, 2*time.Second) {
			keys[message.Key()] = true
			check(consumer.Ack(message))
		}
		seen = append(seen, sorted(keys))
	}
	return append(seen, refusal)
}
