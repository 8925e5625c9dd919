// Command franzgo has clients of franz-go, which another process uses: one call for each line of standard input.
// foreign_clients.py has the format.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	deadline      = 90 * time.Second
	copiedAtOnce  = 10
	readCommitted = "read_committed"
)

// calls are what a kind of client can do.
type calls interface {
	call(ctx context.Context, what string, arguments []string) ([]string, error)
	close()
}

type producerCalls struct{ client *kgo.Client }

type consumerCalls struct{ client *kgo.Client }

// copierCalls consumes, transforms and produces: a transaction for each call.
type copierCalls struct {
	session *kgo.GroupTransactSession
	target  string
}

func common(options map[string]string) []kgo.Opt {
	chosen := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(options["bootstrap.servers"], ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if id := options["transactional.id"]; id != "" {
		chosen = append(chosen, kgo.TransactionalID(id))
	}
	if text := options["transaction.timeout.ms"]; text != "" {
		milliseconds, _ := strconv.Atoi(text)
		chosen = append(chosen, kgo.TransactionTimeout(time.Duration(milliseconds)*time.Millisecond))
	}
	if options["isolation.level"] == readCommitted {
		chosen = append(chosen, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return chosen
}

func open(kind string, options map[string]string) (calls, error) {
	if kind == "copier" {
		options["isolation.level"] = readCommitted
		session, err := kgo.NewGroupTransactSession(append(
			common(options),
			kgo.ConsumerGroup(options["group.id"]),
			kgo.ConsumeTopics(options["source"]),
			kgo.RequireStableFetchOffsets(),
			kgo.SessionTimeout(10*time.Second),
			kgo.HeartbeatInterval(500*time.Millisecond),
		)...)
		return &copierCalls{session, options["target"]}, err
	}
	client, err := kgo.NewClient(common(options)...)
	if kind == "producer" {
		return &producerCalls{client}, err
	}
	return &consumerCalls{client}, err
}

func (producer *producerCalls) call(ctx context.Context, what string, arguments []string) ([]string, error) {
	client := producer.client
	switch what {
	case "init":
		_, _, err := client.ProducerID(ctx)
		return nil, err
	case "begin":
		return nil, client.BeginTransaction()
	case "send":
		partition, _ := strconv.Atoi(arguments[1])
		record := &kgo.Record{Topic: arguments[0], Partition: int32(partition), Value: []byte(arguments[2])}
		sent, err := client.ProduceSync(ctx, record).First()
		if err != nil {
			return nil, err
		}
		return []string{strconv.FormatInt(sent.Offset, 10)}, nil
	case "commit":
		if err := client.Flush(ctx); err != nil {
			return nil, err
		}
		return nil, client.EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		if err := client.AbortBufferedRecords(ctx); err != nil {
			return nil, err
		}
		return nil, client.EndTransaction(ctx, kgo.TryAbort)
	}
	return nil, fmt.Errorf("a producer does not %s", what)
}

func (producer *producerCalls) close() { producer.client.Close() }

func (consumer *consumerCalls) call(ctx context.Context, what string, arguments []string) ([]string, error) {
	switch what {
	case "subscribe":
		consumer.client.AddConsumeTopics(arguments...)
		return nil, nil
	case "poll":
		milliseconds, _ := strconv.Atoi(arguments[0])
		limited, cancel := context.WithTimeout(ctx, time.Duration(milliseconds)*time.Millisecond)
		defer cancel()
		values, err := polled(consumer.client.PollFetches(limited))
		return values, err
	}
	return nil, fmt.Errorf("a consumer does not %s", what)
}

func (consumer *consumerCalls) close() { consumer.client.Close() }

func (copier *copierCalls) call(ctx context.Context, what string, arguments []string) ([]string, error) {
	if what != "copy" {
		return nil, fmt.Errorf("a copier does not %s", what)
	}
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	values, err := polled(copier.session.PollRecords(limited, copiedAtOnce))
	if err != nil || len(values) == 0 {
		return nil, err
	}
	if err := copier.session.Begin(); err != nil {
		return nil, err
	}
	for _, value := range values {
		record := &kgo.Record{Topic: copier.target, Value: []byte("copy of " + value)}
		if err := copier.session.ProduceSync(ctx, record).FirstErr(); err != nil {
			return nil, err
		}
	}
	outcome := arguments[0]
	if outcome == "crash" {
		return values, nil
	}
	wants := kgo.TransactionEndTry(outcome == "commit")
	committed, err := copier.session.End(ctx, wants)
	if err == nil && committed != bool(wants) {
		err = errors.New("the session has aborted by itself")
	}
	return values, err
}

func (copier *copierCalls) close() { copier.session.CloseAllowingRebalance() }

func polled(fetches kgo.Fetches) ([]string, error) {
	var values []string
	fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	return values, nil
}

func answer(clients map[string]calls, words []string) (results []string, err error) {
	what, name, arguments := words[0], words[1], words[2:]
	switch what {
	case "producer", "consumer", "copier":
		options := map[string]string{}
		for _, option := range arguments {
			key, value, _ := strings.Cut(option, "=")
			options[key] = value
		}
		clients[name], err = open(what, options)
		return nil, err
	case "close":
		clients[name].close()
		delete(clients, name)
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	return clients[name].call(ctx, what, arguments)
}

func nameOf(err error) string {
	var code *kerr.Error
	if errors.As(err, &code) {
		return code.Message
	}
	return fmt.Sprintf("%T", err)
}

func main() {
	clients := map[string]calls{}
	plain := strings.NewReplacer("\t", " ", "\n", " ")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		results, err := answer(clients, strings.Split(lines.Text(), "\t"))
		words := append([]string{"ok"}, results...)
		if err != nil {
			fmt.Fprintln(os.Stderr, lines.Text(), err)
			words = []string{"error", nameOf(err), err.Error()}
		}
		for index, word := range words {
			words[index] = plain.Replace(word)
		}
		fmt.Println(strings.Join(words, "\t"))
	}
}
