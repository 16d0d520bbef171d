// The scenarios of scenarios.py by the official Go client.
//
// Arguments: service URL, admin URL, prefix of all topics, names of scenarios. Writes one line for each: its name, a tab,
// what was observed as JSON; or, after the tab, "error " and the error, or "absent" for one that is not here.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const timeout = 20 * time.Second

var client pulsar.Client

func main() {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	var err error
	client, err = pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[1], Logger: log.NewLoggerWithLogrus(quiet), OperationTimeout: timeout})
	check(err)
	all := map[string]func(string) any{
		"order": order, "compression": compression, "chunks": chunks, "shared": shared, "redelivery_count": redeliveryCount, "delayed": delayed,
		"dead_letter": deadLetter, "failover": failover, "key_shared": keyShared, "exclusive_is_busy": exclusiveIsBusy,
		"cumulative": cumulative, "seek": seek, "reader": reader, "access_mode": accessMode,
		"regex": regex, "non_persistent": nonPersistent, "compacted": compacted, "deduplication": deduplication,
		"partitioned": partitioned, "unsubscribe": unsubscribe, "administration": administration,
		"retry_letter": retryLetter, "sticky": sticky, "batch_index": batchIndex, "table_view": tableView,
	}
	for _, name := range os.Args[4:] {
		scenario, known := all[name]
		if !known {
			fmt.Printf("%s\tabsent\n", name)
			continue
		}
		fmt.Printf("%s\t%s\n", name, observed(scenario, os.Args[3]+"-"+name))
	}
	os.Exit(0) // what a client left open must not keep the test waiting
}

func observed(scenario func(string) any, topic string) (seen string) {
	defer func() {
		if failure := recover(); failure != nil {
			seen = "error " + strings.Join(strings.Fields(fmt.Sprint(failure)), " ")
		}
	}()
	text, err := json.Marshal(scenario(topic))
	check(err)
	return string(text)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func producer(options pulsar.ProducerOptions) pulsar.Producer {
	made, err := client.CreateProducer(options)
	check(err)
	return made
}

func send(topic string, from, to int) {
	made := producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	defer made.Close()
	for i := from; i < to; i++ {
		_, err := made.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(fmt.Sprintf("m%d", i))})
		check(err)
	}
}

func options(topic string, kind pulsar.SubscriptionType) pulsar.ConsumerOptions {
	return pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "s", Type: kind, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		NackRedeliveryDelay: 200 * time.Millisecond,
	}
}

func subscribe(options pulsar.ConsumerOptions) pulsar.Consumer {
	made, err := client.Subscribe(options)
	check(err)
	return made
}

func receive(consumer pulsar.Consumer, within time.Duration) pulsar.Message {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	message, err := consumer.Receive(ctx)
	if err == context.DeadlineExceeded {
		return nil
	}
	check(err)
	return message
}

func texts(consumer pulsar.Consumer, count int) []string {
	seen := []string{}
	for range count {
		message := receive(consumer, timeout)
		seen = append(seen, string(message.Payload()))
		check(consumer.Ack(message))
	}
	return seen
}

// nextText is the text of one more message that comes soon, or nil.
func nextText(consumer pulsar.Consumer) any {
	if message := receive(consumer, 500*time.Millisecond); message != nil {
		return string(message.Payload())
	}
	return nil
}

func order(topic string) any {
	consumer := subscribe(options(topic, pulsar.Exclusive))
	defer consumer.Close()
	made := producer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 10})
	defer made.Close()
	for i := range 100 {
		made.SendAsync(context.Background(), &pulsar.ProducerMessage{
			Payload: []byte(fmt.Sprintf("m%d", i)), Key: fmt.Sprintf("k%d", i%5),
			Properties: map[string]string{"number": strconv.Itoa(i)}, EventTime: time.UnixMilli(int64(1000 + i)),
		}, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
	}
	check(made.FlushWithCtx(context.Background()))
	keys, ordered := map[string]bool{}, 0
	for i := range 100 {
		message := receive(consumer, timeout)
		keys[message.Key()] = true
		if string(message.Payload()) == fmt.Sprintf("m%d", i) && message.Properties()["number"] == strconv.Itoa(i) &&
			message.EventTime().UnixMilli() == int64(1000+i) {
			ordered++
		}
		check(consumer.Ack(message))
	}
	return []any{ordered, sorted(keys)}
}

func sorted(set map[string]bool) []string {
	names := []string{}
	for name := range set {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func compression(topic string) any {
	consumer := subscribe(options(topic, pulsar.Exclusive))
	defer consumer.Close()
	large := strings.Repeat("x", 10_000)
	for _, kind := range []pulsar.CompressionType{pulsar.LZ4, pulsar.ZLib, pulsar.ZSTD} {
		made := producer(pulsar.ProducerOptions{Topic: topic, CompressionType: kind})
		_, err := made.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(large)})
		check(err)
		made.Close()
	}
	lengths := []int{}
	for _, text := range texts(consumer, 3) {
		if text != large {
			text = ""
		}
		lengths = append(lengths, len(text))
	}
	return lengths
}

func chunks(topic string) any {
	large := make([]byte, 12_000_000)
	for i := range large {
		large[i] = byte(i * 31 / 7)
	}
	consumer := subscribe(options(topic, pulsar.Exclusive))
	defer consumer.Close()
	made := producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, EnableChunking: true})
	defer made.Close()
	for _, payload := range [][]byte{large, []byte("after")} {
		_, err := made.Send(context.Background(), &pulsar.ProducerMessage{Payload: payload})
		check(err)
	}
	message := receive(consumer, timeout)
	isSame := bytes.Equal(message.Payload(), large)
	check(consumer.Ack(message))
	return []any{isSame, texts(consumer, 1)}
}

func shared(topic string) any {
	mine := options(topic, pulsar.Shared)
	mine.ReceiverQueueSize = 1
	first, second := subscribe(mine), subscribe(mine)
	defer second.Close()
	send(topic, 0, 20)
	isShared := receive(first, timeout) != nil // and keeps it until it is closed
	seen := map[string]bool{}
	for _, text := range texts(second, 5) {
		seen[text] = true
	}
	first.Close()
	for _, text := range texts(second, 15) {
		seen[text] = true
	}
	return []any{isShared, len(seen)}
}

func redeliveryCount(topic string) any {
	consumer := subscribe(options(topic, pulsar.Shared))
	defer consumer.Close()
	send(topic, 0, 1)
	counts := []uint32{}
	for range 3 {
		message := receive(consumer, timeout)
		counts = append(counts, message.RedeliveryCount())
		consumer.Nack(message)
	}
	return counts
}

func delayed(topic string) any {
	consumer := subscribe(options(topic, pulsar.Shared))
	defer consumer.Close()
	made := producer(pulsar.ProducerOptions{Topic: topic})
	defer made.Close()
	now := time.Now()
	for _, message := range []*pulsar.ProducerMessage{
		{Payload: []byte("m0"), DeliverAfter: 5 * time.Second},
		{Payload: []byte("m1"), DeliverAt: now.Add(2 * time.Second)},
		{Payload: []byte("m2")},
	} {
		_, err := made.Send(context.Background(), message)
		check(err)
	}
	seen := []any{}
	for _, least := range []time.Duration{0, 2 * time.Second, 5 * time.Second} {
		message := receive(consumer, timeout)
		// The protocol counts milliseconds, whole ones.
		seen = append(seen, string(message.Payload()), time.Since(now)+time.Millisecond >= least)
	}
	return seen
}

func failover(topic string) any {
	mine := options(topic, pulsar.Failover)
	mine.AckWithResponse = true // what is acknowledged without one just before a consumer closes may come again
	one, other := subscribe(mine), subscribe(mine)
	time.Sleep(2 * time.Second) // a change of the active consumer has a delay of one
	send(topic, 0, 6)
	active, waiting := other, one
	var message pulsar.Message
	for end := time.Now().Add(timeout); message == nil && time.Now().Before(end); {
		active, waiting = waiting, active
		message = receive(active, 100*time.Millisecond)
	}
	check(active.Ack(message))
	seen := append([]string{string(message.Payload())}, texts(active, 2)...)
	receive(active, timeout) // and is not acknowledged
	active.Close()
	seen = append(seen, texts(waiting, 3)...)
	waiting.Close()
	return seen
}

func exclusiveIsBusy(topic string) any {
	consumer := subscribe(options(topic, pulsar.Exclusive))
	defer consumer.Close()
	second, err := client.Subscribe(options(topic, pulsar.Exclusive))
	if err == nil {
		second.Close()
		return "both are there"
	}
	if strings.Contains(err.Error(), "ConsumerBusy") {
		return "busy"
	}
	return err.Error()
}

func cumulative(topic string) any {
	send(topic, 0, 10)
	consumer := subscribe(options(topic, pulsar.Exclusive))
	var message pulsar.Message
	for range 7 {
		message = receive(consumer, timeout)
	}
	check(consumer.AckCumulative(message))
	consumer.Close()
	consumer = subscribe(options(topic, pulsar.Exclusive))
	defer consumer.Close()
	return texts(consumer, 3)
}

func seek(topic string) any {
	send(topic, 0, 10)
	consumer := subscribe(options(topic, pulsar.Exclusive))
	defer consumer.Close()
	ids := []pulsar.MessageID{}
	for range 10 {
		message := receive(consumer, timeout)
		ids = append(ids, message.ID())
		check(consumer.Ack(message))
	}
	check(consumer.SeekByTime(time.UnixMilli(1))) // this client does not seek to the earliest or latest message
	earliest := texts(consumer, 1)
	check(consumer.Seek(ids[5]))
	byID := texts(consumer, 1)
	check(consumer.SeekByTime(time.UnixMilli(0)))
	byTime := texts(consumer, 1)
	check(consumer.SeekByTime(time.Now().Add(time.Hour)))
	send(topic, 10, 11)
	return []any{earliest, byID, byTime, texts(consumer, 1)}
}

func batchIndex(topic string) any {
	mine := options(topic, pulsar.Shared)
	mine.EnableBatchIndexAcknowledgment = true
	consumer := subscribe(mine)
	made := producer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 10, BatchingMaxPublishDelay: timeout})
	defer made.Close()
	for i := range 10 {
		made.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(fmt.Sprintf("m%d", i))},
			func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
	}
	check(made.FlushWithCtx(context.Background()))
	for i := range 10 {
		message := receive(consumer, timeout)
		if i%2 == 0 {
			check(consumer.Ack(message))
		}
	}
	consumer.Close()
	consumer = subscribe(mine)
	defer consumer.Close()
	seen := []any{}
	for _, text := range texts(consumer, 5) {
		seen = append(seen, text)
	}
	return append(seen, nextText(consumer))
}

func tableView(topic string) any {
	// A view of this client needs a schema, and where a producer without one is connected no schema is taken.
	schema := pulsar.NewStringSchema(nil)
	made := producer(pulsar.ProducerOptions{Topic: topic, Schema: schema}) // outside of a batch this client receives no empty message
	defer made.Close()
	set := func(key string, value string) {
		_, err := made.Send(context.Background(), &pulsar.ProducerMessage{Key: key, Value: value})
		check(err)
	}
	for i := range 6 {
		set(fmt.Sprintf("k%d", i%3), fmt.Sprintf("m%d", i))
	}
	view, err := client.CreateTableView(pulsar.TableViewOptions{
		Topic: topic, Schema: schema, SchemaValueType: reflect.TypeFor[*string](),
	})
	check(err)
	defer view.Close()
	seen := []any{}
	for _, key := range []string{"k0", "k1", "k2"} {
		seen = append(seen, view.Get(key))
	}
	set("k0", "m6")
	set("k1", "") // which deletes the key
	until("the changes", func() bool { return !view.ContainsKey("k1") })
	return append(seen, view.Get("k0"), view.Get("k1"))
}

func reader(topic string) any {
	send(topic, 0, 5)
	seen := []string{}
	var second pulsar.MessageID
	read := func(start pulsar.MessageID, limit int) {
		made, err := client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: start})
		check(err)
		defer made.Close()
		for range limit {
			if !made.HasNext() {
				break
			}
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			message, err := made.Next(ctx)
			cancel()
			check(err)
			seen = append(seen, string(message.Payload()))
			if len(seen) == 2 {
				second = message.ID()
			}
		}
		if limit == 0 {
			seen = append(seen, strconv.FormatBool(made.HasNext()))
		}
	}
	read(pulsar.EarliestMessageID(), 10)
	read(second, 1)
	read(pulsar.LatestMessageID(), 0)
	return seen
}

func accessMode(topic string) any {
	first := producer(pulsar.ProducerOptions{Topic: topic, ProducerAccessMode: pulsar.ProducerAccessModeExclusive})
	seen := []string{}
	for _, mode := range []pulsar.ProducerAccessMode{pulsar.ProducerAccessModeExclusive, pulsar.ProducerAccessModeShared} {
		_, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, ProducerAccessMode: mode})
		switch {
		case err == nil:
			seen = append(seen, "both are there")
		case strings.Contains(err.Error(), "ProducerFenced"):
			seen = append(seen, "fenced")
		case strings.Contains(err.Error(), "ProducerBusy"):
			seen = append(seen, "busy")
		default:
			seen = append(seen, err.Error())
		}
	}
	done := make(chan error, 1)
	go func() {
		waiting, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, ProducerAccessMode: pulsar.ProducerAccessModeWaitForExclusive})
		if err == nil {
			waiting.Close()
		}
		done <- err
	}()
	select {
	case <-done:
		seen = append(seen, "did not wait")
	case <-time.After(300 * time.Millisecond):
		seen = append(seen, "waits")
	}
	first.Close()
	select {
	case err := <-done:
		check(err)
		seen = append(seen, "has it")
	case <-time.After(timeout):
		seen = append(seen, "never has it")
	}
	return seen
}

func regex(topic string) any {
	send(topic+"-one", 0, 1)
	pattern := options("", pulsar.Exclusive)
	pattern.TopicsPattern = topic + "-.*"
	pattern.AutoDiscoveryPeriod = time.Second
	consumer := subscribe(pattern)
	defer consumer.Close()
	seen := []any{texts(consumer, 1)[0]}
	send(topic+"x", 2, 3)
	send(topic+"-two", 1, 2)
	seen = append(seen, texts(consumer, 1)[0])
	return append(seen, nextText(consumer))
}

func nonPersistent(topic string) any {
	topic = "non-" + topic
	first := subscribe(options(topic, pulsar.Exclusive))
	send(topic, 0, 5)
	seen := texts(first, 5)
	first.Close()
	send(topic, 5, 6)
	second := subscribe(options(topic, pulsar.Exclusive))
	defer second.Close()
	send(topic, 6, 7)
	return append(seen, texts(second, 1)...)
}
