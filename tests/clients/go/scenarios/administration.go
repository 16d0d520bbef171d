package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

// The scenarios that need the admin library.

func admin() pulsaradmin.Client {
	made, err := pulsaradmin.NewClient(&pulsaradmin.Config{WebServiceURL: os.Args[2]})
	check(err)
	return made
}

func named(topic string) utils.TopicName {
	name, err := utils.GetTopicName(topic)
	check(err)
	return *name
}

func until(what string, isSo func() bool) {
	for end := time.Now().Add(timeout); !isSo(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			panic("not there after " + timeout.String() + ": " + what)
		}
	}
}

func compacted(topic string) any {
	consumer := subscribe(options(topic, pulsar.Exclusive))
	made := producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	for i := range 9 {
		_, err := made.Send(context.Background(), &pulsar.ProducerMessage{
			Key: fmt.Sprintf("k%d", i%3), Payload: []byte(fmt.Sprintf("m%d", i)),
		})
		check(err)
	}
	_, err := made.Send(context.Background(), &pulsar.ProducerMessage{Key: "k0", Payload: []byte{}}) // which deletes the key
	check(err)
	made.Close()
	texts(consumer, 1)
	consumer.Close()
	topics := admin().Topics()
	check(topics.Compact(named(topic)))
	until("a compacted topic", func() bool {
		status, err := topics.CompactStatus(named(topic))
		check(err)
		return status.Status == utils.SUCCESS
	})
	mine := options(topic, pulsar.Exclusive)
	mine.SubscriptionName, mine.ReadCompacted = "compacted", true
	view := subscribe(mine)
	defer view.Close()
	return texts(view, 2)
}

func deduplication(topic string) any {
	topics := admin().Topics()
	check(topics.Create(named(topic), 0))
	check(topics.SetDeduplicationStatus(named(topic), true))
	until("the policy", func() bool {
		isOn, err := topics.GetDeduplicationStatus(named(topic))
		check(err)
		return isOn
	})
	time.Sleep(time.Second) // Pulsar obeys a policy of a topic some time after it has said so
	consumer := subscribe(options(topic, pulsar.Exclusive))
	defer consumer.Close()
	for life := range 2 {
		made := producer(pulsar.ProducerOptions{Topic: topic, Name: "p", SendTimeout: -1, DisableBatching: true})
		for i := range int64(5 + life) {
			_, err := made.Send(context.Background(), &pulsar.ProducerMessage{
				SequenceID: &i, Payload: []byte(fmt.Sprintf("m%d", i)),
			})
			check(err)
		}
		made.Close()
	}
	seen := []any{}
	for _, text := range texts(consumer, 6) {
		seen = append(seen, text)
	}
	return append(seen, nextText(consumer))
}

func partitioned(topic string) any {
	topics := admin().Topics()
	check(topics.Create(named(topic), 3))
	consumer := subscribe(options(topic, pulsar.Exclusive))
	defer consumer.Close()
	made := producer(pulsar.ProducerOptions{Topic: topic})
	defer made.Close()
	for i := range 30 {
		_, err := made.Send(context.Background(), &pulsar.ProducerMessage{
			Key: fmt.Sprintf("k%d", i%10), Payload: []byte(fmt.Sprintf("m%d", i)),
		})
		check(err)
	}
	partitions, most := map[string]map[string]bool{}, 0
	for range 30 {
		message := receive(consumer, timeout)
		key := message.Key()
		if partitions[key] == nil {
			partitions[key] = map[string]bool{}
		}
		partitions[key][message.Topic()] = true
		most = max(most, len(partitions[key]))
		check(consumer.Ack(message))
	}
	metadata, err := topics.GetMetadata(named(topic))
	check(err)
	return []any{len(partitions), most, metadata.Partitions}
}

func unsubscribe(topic string) any {
	send(topic, 0, 1)
	consumer := subscribe(options(topic, pulsar.Exclusive))
	defer consumer.Close()
	texts(consumer, 1)
	check(consumer.Unsubscribe())
	left, err := admin().Subscriptions().List(named(topic))
	check(err)
	return left
}

func administration(topic string) any {
	name, topics, subscriptions := named(topic), admin().Topics(), admin().Subscriptions()
	backlog := func() int64 {
		stats, err := topics.GetStats(name)
		check(err)
		return stats.Subscriptions["s"].MsgBacklog
	}
	check(topics.Create(name, 0))
	check(subscriptions.Create(name, "s", utils.Latest))
	send(topic, 0, 10)
	seen := []any{backlog()}
	peeked, err := subscriptions.PeekMessages(name, "s", 2)
	check(err)
	contents := []string{}
	for _, message := range peeked {
		contents = append(contents, string(message.GetPayload()))
	}
	seen = append(seen, contents)
	check(subscriptions.SkipMessages(name, "s", 4))
	seen = append(seen, backlog())
	check(subscriptions.ResetCursorToTimestamp(name, "s", 0))
	seen = append(seen, backlog())
	check(subscriptions.ClearBacklog(name, "s"))
	seen = append(seen, backlog())
	check(topics.Unload(name))
	internal, err := topics.GetInternalStats(name)
	check(err)
	seen = append(seen, internal.EntriesAddedCounter)
	_, err = topics.Terminate(name)
	seen = append(seen, err == nil)
	seen = append(seen, sendToTerminated(topic))
	check(topics.Delete(name, false, true))
	namespace, err := utils.GetNamespaceName("public/default")
	check(err)
	_, listed, err := topics.List(*namespace)
	check(err)
	return append(seen, slices.Contains(listed, topic))
}

func sendToTerminated(topic string) string {
	made, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, SendTimeout: timeout})
	if err == nil {
		defer made.Close()
		_, err = made.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("m10")})
	}
	switch {
	case err == nil:
		return "is open"
	case strings.Contains(strings.ToLower(err.Error()), "terminated"):
		return "is terminated"
	}
	return err.Error()
}
