// Cases of secured_cases.py by the official Go client.
//
// Reads a case from each line of standard input, JSON as secured_site.py writes it. Writes a line for each: its name, what
// came of it, the seconds that it took, and what the client said, separated by tabs.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const (
	atOnce         = 8
	receiveTimeout = 20 * time.Second
	pause          = 200 * time.Millisecond
)

type aCase struct {
	Name     string            `json:"name"`
	Kind     string            `json:"kind"`
	Params   map[string]string `json:"params"`
	URL      string            `json:"url"`
	Topic    string            `json:"topic"`
	Trust    string            `json:"trust"`
	Verifies bool              `json:"verifies"`
	LimitS   int               `json:"limit_s"`
	Seconds  int               `json:"seconds"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	gate := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for lines.Scan() {
		var one aCase
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			panic(err)
		}
		all.Add(1)
		gate <- struct{}{}
		go func() {
			defer all.Done()
			defer func() { <-gate }()
			heard := &written{}
			logger := logrus.New()
			logger.SetLevel(logrus.WarnLevel)
			logger.SetOutput(heard)
			began := time.Now()
			result, err := play(one, log.NewLoggerWithLogrus(logger))
			said := ""
			if err != nil {
				said = strings.Join(strings.Fields(err.Error()+" "+heard.text()), " ")
				result = word(said)
			}
			fmt.Printf("%s\t%s\t%.2f\t%s\n", one.Name, result, time.Since(began).Seconds(), said)
		}()
	}
	all.Wait()
	os.Exit(0) // what a client left open must not keep the test waiting
}

// What a client logs, from any of its goroutines.
type written struct {
	lock  sync.Mutex
	bytes bytes.Buffer
}

func (it *written) Write(more []byte) (int, error) {
	it.lock.Lock()
	defer it.lock.Unlock()
	return it.bytes.Write(more)
}

func (it *written) text() string {
	it.lock.Lock()
	defer it.lock.Unlock()
	return it.bytes.String()
}

// Send a message and receive it; then go on sending for as long as the case says.
func play(one aCase, logger log.Logger) (string, error) {
	limit := time.Duration(one.LimitS) * time.Second
	shown, err := authentication(one)
	if err != nil {
		return "", err
	}
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: one.URL, Logger: logger, Authentication: shown, OperationTimeout: limit, ConnectionTimeout: limit,
		TLSTrustCertsFilePath: one.Trust, TLSValidateHostname: one.Verifies,
	})
	if err != nil {
		return "", err
	}
	defer client.Close()
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: one.Topic, SubscriptionName: "s"})
	if err != nil {
		return "", err
	}
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: one.Topic, SendTimeout: limit})
	if err != nil {
		return "", err
	}
	if _, err = producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("hello")}); err != nil {
		return "", err
	}
	soon, cancel := context.WithTimeout(context.Background(), receiveTimeout)
	defer cancel()
	message, err := consumer.Receive(soon)
	if err != nil {
		return "", err
	}
	if err = consumer.Ack(message); err != nil {
		return "", err
	}
	end := time.Now().Add(time.Duration(one.Seconds) * time.Second)
	for time.Now().Before(end) {
		// A producer without a connection waits for one, whatever its own limit is.
		soon, cancel := context.WithTimeout(context.Background(), limit)
		_, err = producer.Send(soon, &pulsar.ProducerMessage{Payload: []byte("again")})
		cancel()
		if err != nil {
			return "ended", nil
		}
		time.Sleep(pause)
	}
	if string(message.Payload()) != "hello" {
		return "another message", nil
	}
	return "ok", nil
}

func authentication(one aCase) (pulsar.Authentication, error) {
	params := one.Params
	switch one.Kind {
	case "token":
		return pulsar.NewAuthenticationToken(params["token"]), nil
	case "token file":
		return pulsar.NewAuthenticationTokenFromFile(params["file"]), nil
	case "basic":
		return pulsar.NewAuthenticationBasic(params["user"], params["password"])
	case "tls":
		return pulsar.NewAuthenticationTLS(params["certificate"], params["key"]), nil
	case "oauth2":
		return pulsar.NewAuthenticationOAuth2(map[string]string{
			"type": "client_credentials", "issuerUrl": params["issuer"], "audience": params["audience"],
			"privateKey": params["key_file"], "clientId": "id",
		}), nil
	}
	return nil, nil
}

// What refused it, by the words of its error or else of its log.
func word(said string) string {
	for _, one := range [][2]string{
		{"Failed to authenticate", "authentication"}, {"oauth", "authentication"}, {"AuthorizationError", "authorization"}, {"x509:", "tls"}, {"tls:", "tls"},
		{"connection error", "connection"}, {"timeout", "timeout"}, {"timed out", "timeout"},
	} {
		if strings.Contains(said, one[0]) {
			return one[1]
		}
	}
	return said
}
