// The details of details.py by the official Go client and its admin library.
//
// Arguments: service URL, admin URL, prefix of all topics, names of details. Writes one line for each: its name, a tab,
// what was observed as JSON; or, after the tab, "error " and the error, or "absent" for one that is not here.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/rest"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
	"github.com/sirupsen/logrus"
)

const timeout = 20 * time.Second

var (
	client pulsar.Client
	admin  pulsaradmin.Client
)

func main() {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	var err error
	client, err = pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[1], Logger: log.NewLoggerWithLogrus(quiet), OperationTimeout: timeout})
	check(err)
	admin, err = pulsaradmin.NewClient(&pulsaradmin.Config{WebServiceURL: os.Args[2]})
	check(err)
	all := map[string]func(string, string) any{
		"non_durable": nonDurable, "largest_message": largestMessage, "topic_type": topicType, "partition_index": partitionIndex,
		"cluster_slash": clusterSlash, "anti_affinity": antiAffinity, "dynamic_settings": dynamicSettings, "broker_stats": brokerStats,
		"replicator_rates": replicatorRates, "bookie_affinity": bookieAffinity, "peek_absent": peekAbsent,
	}
	for _, name := range os.Args[4:] {
		detail, known := all[name]
		if !known {
			fmt.Printf("%s\tabsent\n", name)
			continue
		}
		topic := os.Args[3] + "-" + name
		fmt.Printf("%s\t%s\n", name, observed(detail, topic, "public/"+topic[strings.LastIndex(topic, "/")+1:]))
	}
	os.Exit(0) // connections that are still open must not keep the test waiting
}

func observed(detail func(string, string) any, topic, namespace string) (seen string) {
	defer func() {
		if failure := recover(); failure != nil {
			seen = "error " + strings.Join(strings.Fields(fmt.Sprint(failure)), " ")
		}
	}()
	text, err := json.Marshal(detail(topic, namespace))
	check(err)
	return string(text)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// status is what the admin API answers an invalid call with; 0 if it succeeds.
func status(err error) int {
	if err == nil {
		return 0
	}
	var refused rest.Error
	if errors.As(err, &refused) {
		return refused.Code
	}
	panic(err)
}

func named(topic string) utils.TopicName {
	name, err := utils.GetTopicName(topic)
	check(err)
	return *name
}

func made(namespace string) utils.NameSpaceName {
	check(admin.Namespaces().CreateNamespace(namespace))
	name, err := utils.GetNamespaceName(namespace)
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

func producer(topic string) pulsar.Producer {
	made, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	check(err)
	return made
}

func send(topic string, from, to int) {
	made := producer(topic)
	defer made.Close()
	for i := from; i < to; i++ {
		_, err := made.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(fmt.Sprintf("m%d", i))})
		check(err)
	}
}

func receive(consumer pulsar.Consumer) pulsar.Message {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	message, err := consumer.Receive(ctx)
	check(err)
	return message
}

func texts(consumer pulsar.Consumer, count int) []string {
	seen := []string{}
	for range count {
		seen = append(seen, string(receive(consumer).Payload()))
	}
	return seen
}

func nonDurable(topic, _ string) any {
	send(topic, 0, 3)
	subscribe := func(name string, position pulsar.SubscriptionInitialPosition) pulsar.Consumer {
		made, err := client.Subscribe(pulsar.ConsumerOptions{
			Topic: topic, SubscriptionName: name, SubscriptionMode: pulsar.NonDurable, SubscriptionInitialPosition: position,
		})
		check(err)
		return made
	}
	earliest := subscribe("earliest", pulsar.SubscriptionPositionEarliest)
	latest := subscribe("latest", pulsar.SubscriptionPositionLatest)
	send(topic, 3, 4)
	seen := []any{texts(earliest, 4), texts(latest, 1)}
	earliest.Close()
	latest.Close()
	left, err := admin.Subscriptions().List(named(topic))
	check(err)
	return append(seen, left)
}

// largestMessage is how many bytes below maxMessageSize the largest payload is, without those of the producer's name.
func largestMessage(topic, _ string) any {
	settings, err := admin.Brokers().GetRuntimeConfigurations()
	check(err)
	limit, err := strconv.Atoi(settings["maxMessageSize"])
	check(err)
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"})
	check(err)
	defer consumer.Close()
	made := producer(topic)
	defer made.Close()
	sent := sort.Search(200, func(below int) bool {
		_, err := made.Send(context.Background(), &pulsar.ProducerMessage{Payload: make([]byte, limit-below)})
		if err != nil && !strings.Contains(err.Error(), "exceeds MaxMessageSize") {
			panic(err)
		}
		return err == nil
	})
	for len(receive(consumer).Payload()) != limit-sent { // those that are smaller
	}
	return []any{sent - len(made.Name()), regexp.MustCompile(`^standalone-\d+-\d+$`).MatchString(made.Name())}
}

func topicType(_, namespace string) any {
	name := made(namespace)
	check(admin.Namespaces().SetTopicAutoCreation(name, utils.TopicAutoCreationConfig{Allow: false}))
	kept, err := admin.Namespaces().GetTopicAutoCreation(name)
	check(err)
	seen := []any{kept.Allow, kept.Type}
	create := func() string {
		made, err := client.CreateProducer(pulsar.ProducerOptions{Topic: namespace + "/t"})
		if err != nil {
			return "refused"
		}
		made.Close()
		return "created"
	}
	seen = append(seen, create())
	seen = append(seen, status(admin.Namespaces().SetTopicAutoCreation(name, utils.TopicAutoCreationConfig{Allow: true})))
	check(admin.Namespaces().RemoveTopicAutoCreation(name))
	return append(seen, create())
}

func partitionIndex(topic, _ string) any {
	check(admin.Topics().Create(named(topic), 3))
	send(topic+"-partition-2", 0, 1)
	send(topic+"-plain", 0, 1)
	seen := []int{}
	for _, one := range []string{topic + "-partition-2", topic + "-plain"} {
		first, err := admin.Topics().GetMessageID(named(one), 0)
		check(err)
		last, err := admin.Topics().GetLastMessageID(named(one))
		check(err)
		seen = append(seen, first.PartitionIndex, last.PartitionIndex)
	}
	return seen
}

func clusterSlash(_, namespace string) any {
	cluster := strings.TrimPrefix(namespace, "public/")
	check(admin.Clusters().Create(utils.ClusterData{
		Name: cluster, ServiceURL: "http://127.0.0.1:8080/", BrokerServiceURL: "pulsar://127.0.0.1:6650/",
	}))
	kept, err := admin.Clusters().Get(cluster)
	check(err)
	check(admin.Clusters().Delete(cluster))
	return []string{kept.ServiceURL, kept.BrokerServiceURL}
}

func antiAffinity(_, namespace string) any {
	made(namespace)
	group := namespace[len("public/"):] + "-group"
	check(admin.Namespaces().SetNamespaceAntiAffinityGroup(namespace, group))
	kept, err := admin.Namespaces().GetNamespaceAntiAffinityGroup(namespace)
	check(err)
	check(admin.Namespaces().DeleteNamespaceAntiAffinityGroup(namespace))
	left, err := admin.Namespaces().GetNamespaceAntiAffinityGroup(namespace)
	check(err)
	return []any{strings.Trim(kept, `"`) == group, left}
}

func dynamicSettings(_, _ string) any {
	brokers := admin.Brokers()
	values := map[string]string{
		"maxConcurrentLookupRequest": "40000", "dispatchThrottlingRatePerSubscriptionInMsg": "100000",
		"dispatchThrottlingRateInByte": "1000000000",
	}
	names, err := brokers.GetDynamicConfigurationNames()
	check(err)
	areKnown := true
	for name, value := range values {
		areKnown = areKnown && slices.Contains(names, name)
		check(brokers.UpdateDynamicConfiguration(name, value))
	}
	changed, err := brokers.GetAllDynamicConfigurations()
	check(err)
	areKept := true
	for name, value := range values {
		areKept = areKept && changed[name] == value
		check(brokers.DeleteDynamicConfiguration(name))
	}
	left, err := brokers.GetAllDynamicConfigurations()
	check(err)
	areGone := true
	for name := range values {
		_, isThere := left[name]
		areGone = areGone && !isThere
	}
	return []any{areKnown, areKept, areGone, status(brokers.UpdateDynamicConfiguration("absent", "1"))}
}

func brokerStats(_, _ string) any {
	stats := admin.BrokerStats()
	metrics, err := stats.GetMetrics()
	check(err)
	areRows := len(metrics) > 0
	for _, row := range metrics {
		areRows = areRows && row.Metrics != nil && row.Dimensions != nil
	}
	beans, err := stats.GetMBeans()
	check(err)
	hasThreads := slices.ContainsFunc(beans, func(row utils.Metrics) bool {
		count, _ := row.Metrics["ThreadCount"].(float64)
		return row.Dimensions["MBean"] == "java.lang:type=Threading" && count > 0
	})
	topics, err := stats.GetTopics()
	check(err)
	seen := []any{areRows, hasThreads, strings.HasPrefix(topics, "{")}
	for _, name := range []string{"default", "ml-cache"} {
		found, err := stats.GetAllocatorStats(name)
		check(err)
		seen = append(seen, found.NumThreadLocalCaches >= 0)
	}
	return seen
}

func replicatorRates(_, namespace string) any {
	name := made(namespace)
	check(admin.Namespaces().SetReplicatorDispatchRate(name, utils.DispatchRate{
		DispatchThrottlingRateInMsg: 12, DispatchThrottlingRateInByte: 22, RatePeriodInSecond: 1,
	}))
	kept, err := admin.Namespaces().GetReplicatorDispatchRate(name)
	check(err)
	topic := named("persistent://" + namespace + "/t")
	check(admin.Topics().Create(topic, 0))
	check(admin.Topics().SetReplicatorDispatchRate(topic, utils.DispatchRateData{
		DispatchThrottlingRateInMsg: 13, DispatchThrottlingRateInByte: 23, RatePeriodInSecond: 2,
	}))
	var own *utils.DispatchRateData
	until("the rate of the topic", func() bool {
		var err error
		own, err = admin.Topics().GetReplicatorDispatchRate(topic)
		check(err)
		return own != nil && own.DispatchThrottlingRateInMsg == 13
	})
	return []any{
		[]any{kept.DispatchThrottlingRateInMsg, kept.DispatchThrottlingRateInByte, kept.RatePeriodInSecond},
		[]any{own.DispatchThrottlingRateInMsg, own.DispatchThrottlingRateInByte, own.RatePeriodInSecond},
	}
}

func bookieAffinity(_, namespace string) any {
	made(namespace)
	check(admin.Namespaces().SetBookieAffinityGroup(namespace, utils.BookieAffinityGroupData{
		BookkeeperAffinityGroupPrimary: "one", BookkeeperAffinityGroupSecondary: "two",
	}))
	kept, err := admin.Namespaces().GetBookieAffinityGroup(namespace)
	check(err)
	seen := []any{kept.BookkeeperAffinityGroupPrimary, kept.BookkeeperAffinityGroupSecondary}
	check(admin.Namespaces().DeleteBookieAffinityGroup(namespace))
	_, err = admin.Namespaces().GetBookieAffinityGroup(namespace)
	return append(seen, status(err))
}

func peekAbsent(topic, _ string) any {
	send(topic, 0, 2)
	messages, err := admin.Subscriptions().PeekMessages(named(topic), "absent", 2)
	check(err)
	seen := []string{}
	for _, message := range messages {
		seen = append(seen, string(message.GetPayload()))
	}
	return seen
}
