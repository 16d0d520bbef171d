// A message through one listener of a broker, by the official Go client.
//
// Arguments: service URL, listener name, topic. Writes the payload that came back, or "error" and the error; keeps its
// producer until standard input ends.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const limit = 5 * time.Second

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Println("error", err)
	}
}

func run(url, listener, topic string) error {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: url, ListenerName: listener, OperationTimeout: limit, Logger: log.NewLoggerWithLogrus(quiet),
	})
	if err != nil {
		return err
	}
	defer client.Close()
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"})
	if err != nil {
		return err
	}
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err = producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte("hello")}); err != nil {
		return err
	}
	message, err := consumer.Receive(ctx)
	if err != nil {
		return err
	}
	fmt.Println(string(message.Payload()))
	_, err = io.ReadAll(os.Stdin)
	return err
}
