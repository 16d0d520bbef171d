package main

import (
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func deadLetter(topic string) any {
	letters := subscribe(options(topic+"-dead", pulsar.Shared))
	defer letters.Close()
	mine := options(topic, pulsar.Shared)
	mine.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: topic + "-dead"}
	consumer := subscribe(mine)
	defer consumer.Close()
	send(topic, 0, 2)
	times, isGood := 0, false
	for {
		message := receive(consumer, 3*time.Second)
		if message == nil {
			break
		}
		if string(message.Payload()) == "m0" {
			times++
			consumer.Nack(message)
		} else {
			isGood = true
			check(consumer.Ack(message))
		}
	}
	letter := receive(letters, timeout)
	check(letters.Ack(letter))
	isNamed := strings.HasSuffix(letter.Properties()["REAL_TOPIC"], topic)
	return []any{times, isGood, string(letter.Payload()), isNamed, 0}
}

func retryLetter(topic string) any {
	letters := subscribe(options(topic+"-s-DLQ", pulsar.Shared))
	defer letters.Close()
	mine := options(topic, pulsar.Shared)
	mine.RetryEnable = true
	mine.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2}
	consumer := subscribe(mine)
	defer consumer.Close()
	send(topic, 0, 1)
	times := []string{}
	for range 3 {
		message := receive(consumer, timeout)
		times = append(times, message.Properties()["RECONSUMETIMES"])
		consumer.ReconsumeLater(message, time.Second)
	}
	return []any{times, texts(letters, 1)}
}
