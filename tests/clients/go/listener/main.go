// A message through an advertised listener, and what the admin API says of addresses.
//
// Arguments: service URL, admin URL, topic, name of the listener. Writes JSON, as test_listeners.py expects it.
package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
	"github.com/sirupsen/logrus"
)

const limit = 10 * time.Second

func main() {
	serviceURL, adminURL, topic, listener := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	seen := map[string]any{"outcome": outcome(serviceURL, topic, listener)}
	admin, err := pulsaradmin.NewClient(&pulsaradmin.Config{WebServiceURL: adminURL})
	check(err)
	name, err := utils.GetTopicName(topic)
	check(err)
	found, err := admin.Topics().Lookup(*name)
	check(err)
	brokers, err := admin.Brokers().GetListActiveBrokers()
	check(err)
	seen["lookup"], seen["brokers"] = found.BrokerURL, brokers
	check(json.NewEncoder(os.Stdout).Encode(seen))
}

func outcome(serviceURL, topic, listener string) string {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: serviceURL, ListenerName: listener, OperationTimeout: limit, Logger: log.NewLoggerWithLogrus(quiet),
	})
	check(err)
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"})
	if err != nil {
		return "refused"
	}
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err = producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte("m0")})
	check(err)
	message, err := consumer.Receive(ctx)
	check(err)
	return string(message.Payload())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
