// What applications do with Apache's Go client, one story each:  scenarios NAMESRV BROKER_ADDR [NAME ...]
//
// Prints "ok NAME (s)" or "FAIL NAME: why" a line, then "N passed, N failed"; exit status 1 if any failed. The stories run
// side by side: each has its own topic, group and client instance. `transaction-check` wants transactionTimeOut and
// transactionCheckInterval of about 1000 ms on the broker, `sql` wants enablePropertyFilter=true. With ROCKETMQ_ACCESS_KEY and
// ROCKETMQ_SECRET_KEY in the environment every request is signed.
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type story struct {
	name string
	tell func() error
}

var (
	namesrv, broker string
	run             = strconv.FormatInt(time.Now().UnixMilli(), 36)
	background      = context.Background()
	instances       atomic.Int64
	resolver        primitive.NsResolver
	sender          rocketmq.Producer
)

// The stories give seconds of a quiet machine.
const patience = 3

var stories = []story{
	{"send-sync", sendSync},
	{"send-async", sendAsync},
	{"send-oneway", sendOneway},
	{"send-batch", sendBatch},
	{"send-large-compressed", sendLargeCompressed},
	{"pull", pull},
	{"poll", poll},
	{"tags", tags},
	{"sql", sql},
	{"long-poll", longPoll},
	{"ordered", ordered},
	{"broadcast", broadcast},
	{"rebalance", rebalance},
	{"offsets-survive", offsetsSurvive},
	{"delay", delay},
	{"retry-dead-letter", retryDeadLetter},
	{"transaction", transaction},
	{"transaction-check", transactionCheck},
	{"request-reply", requestReply},
}

// ---- stories ----------------------------------------------------------------------------------------------------------

func sendSync() error {
	topic, err := createTopic("sync", 4)
	if err != nil {
		return err
	}
	ids, last := map[string]bool{}, map[int]int64{}
	for i := 0; i < 40; i++ {
		r, err := sender.SendSync(background, message(topic, "a", fmt.Sprint("k", i), fmt.Sprint("body ", i)))
		if err != nil {
			return err
		}
		if r.Status != primitive.SendOK || ids[r.MsgID] {
			return fmt.Errorf("status %v, id %s", r.Status, r.MsgID)
		}
		ids[r.MsgID] = true
		want := int64(0)
		if before, known := last[r.MessageQueue.QueueId]; known {
			want = before + 1
		}
		if r.QueueOffset != want {
			return fmt.Errorf("queue offset %d instead of %d", r.QueueOffset, want)
		}
		last[r.MessageQueue.QueueId] = r.QueueOffset
	}
	if len(last) != 4 {
		return fmt.Errorf("queues used: %v", last)
	}
	return readsBack("sync", topic, 40)
}

func sendAsync() error {
	topic, err := createTopic("async", 4)
	if err != nil {
		return err
	}
	var answered, ok atomic.Int64
	for i := 0; i < 200; i++ {
		err := sender.SendAsync(background, func(_ context.Context, r *primitive.SendResult, err error) {
			if err == nil && r.Status == primitive.SendOK {
				ok.Add(1)
			}
			answered.Add(1)
		}, message(topic, "a", fmt.Sprint("k", i), "body"))
		if err != nil {
			return err
		}
	}
	if err := until(20, func() bool { return answered.Load() == 200 }, func() string { return fmt.Sprint("answered ", answered.Load()) }); err != nil {
		return err
	}
	if ok.Load() != 200 {
		return fmt.Errorf("accepted: %d", ok.Load())
	}
	return readsBack("async", topic, 200)
}

func sendOneway() error {
	topic, err := createTopic("oneway", 2)
	if err != nil {
		return err
	}
	for i := 0; i < 100; i++ {
		if err := sender.SendOneWay(background, message(topic, "a", fmt.Sprint("k", i), "body")); err != nil {
			return err
		}
	}
	return readsBack("oneway", topic, 100)
}

func sendBatch() error {
	topic, err := createTopic("batch", 1)
	if err != nil {
		return err
	}
	var batch []*primitive.Message
	for i := 0; i < 50; i++ {
		batch = append(batch, message(topic, fmt.Sprint("t", i%3), fmt.Sprint("k", i), fmt.Sprint("body ", i)))
	}
	r, err := sender.SendSync(background, batch...)
	if err != nil {
		return err
	}
	if r.Status != primitive.SendOK || r.QueueOffset != 0 {
		return errors.New(r.String())
	}
	if ids := strings.Split(r.OffsetMsgID, ","); len(ids) != 50 {
		return fmt.Errorf("offset ids: %d", len(ids))
	}
	seen, err := reading("batch", topic, all)
	if err != nil {
		return err
	}
	if err := until(45, func() bool { return seen.count() == 50 }, seen.text); err != nil {
		return err
	}
	for i := 0; i < 50; i++ {
		m := seen.get(fmt.Sprint("k", i))
		if m == nil || m.GetTags() != fmt.Sprint("t", i%3) || m.QueueOffset != int64(i) || string(m.Body) != fmt.Sprint("body ", i) {
			return fmt.Errorf("message %d differs: %v", i, m)
		}
	}
	return nil
}

func sendLargeCompressed() error {
	topic, err := createTopic("large", 1)
	if err != nil {
		return err
	}
	text := strings.Repeat("abcdefghij", 100_000)
	if _, err := sender.SendSync(background, message(topic, "a", "large", text)); err != nil {
		return err
	}
	seen, err := reading("large", topic, all)
	if err != nil {
		return err
	}
	if err := until(45, func() bool { return seen.count() == 1 }, seen.text); err != nil {
		return err
	}
	if string(seen.get("large").Body) != text {
		return errors.New("the body differs")
	}
	return nil
}

func pull() error {
	topic, err := createTopic("pull", 1)
	if err != nil {
		return err
	}
	for i := 0; i < 10; i++ {
		if _, err := sender.SendSync(background, message(topic, "ab"[i/5:i/5+1], fmt.Sprint("k", i), "body")); err != nil {
			return err
		}
	}
	c, err := newPullConsumer(consumer.WithGroupName(group("pull")), consumer.WithInstance(instance()), consumer.WithNsResolver(resolver))
	if err != nil {
		return err
	}
	if err := c.Subscribe(topic, all); err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer c.Shutdown()
	queue := &primitive.MessageQueue{Topic: topic, BrokerName: brokerName(topic), QueueId: 0}
	// Until the first heartbeat has been seen the real broker may refuse.
	var r *primitive.PullResult
	if err := until(45, func() bool { r, err = c.PullFrom(background, queue, 0, 32); return err == nil }, func() string { return fmt.Sprint(err) }); err != nil {
		return err
	}
	if r.Status != primitive.PullFound || len(r.GetMessageExts()) != 10 || r.MinOffset != 0 || r.MaxOffset != 10 || r.NextBeginOffset != 10 {
		return fmt.Errorf("all: %v", r)
	}
	if r, err = c.PullFrom(background, queue, 3, 4); err != nil || len(r.GetMessageExts()) != 4 || r.NextBeginOffset != 7 {
		return fmt.Errorf("four: %v %v", r, err)
	}
	if r, err = c.PullFrom(background, queue, 99, 32); err != nil || r.Status != primitive.PullOffsetIllegal || r.NextBeginOffset != 10 {
		return fmt.Errorf("past the end: %v %v", r, err)
	}
	if err := c.UpdateOffset(queue, 6); err != nil {
		return err
	}
	if err := c.PersistOffset(background, topic); err != nil {
		return err
	}
	if at, err := c.CurrentOffset(queue); err != nil || at != 6 {
		return fmt.Errorf("committed offset %d %v", at, err)
	}
	return nil
}

func poll() error {
	topic, err := createTopic("poll", 2)
	if err != nil {
		return err
	}
	for i := 0; i < 60; i++ {
		if _, err := sender.SendSync(background, message(topic, "a", fmt.Sprint("k", i), "body")); err != nil {
			return err
		}
	}
	c, err := newPullConsumer(consumer.WithGroupName(group("poll")), consumer.WithInstance(instance()), consumer.WithNsResolver(resolver),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return err
	}
	if err := c.Subscribe(topic, all); err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer c.Shutdown()
	keys := map[string]bool{}
	return until(45, func() bool {
		if request, err := c.Poll(background, 500*time.Millisecond); err == nil {
			for _, m := range request.GetMsgList() {
				keys[m.GetKeys()] = true
			}
			c.ACK(background, request, consumer.ConsumeSuccess)
		}
		return len(keys) == 60
	}, func() string { return fmt.Sprint("polled ", len(keys)) })
}

func tags() error {
	topic, err := createTopic("tags", 2)
	if err != nil {
		return err
	}
	for i := 0; i < 90; i++ {
		if _, err := sender.SendSync(background, message(topic, fmt.Sprint("t", i%3), fmt.Sprint("k", i), "body")); err != nil {
			return err
		}
	}
	seen, err := reading("tags", topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "t0 || t2"})
	if err != nil {
		return err
	}
	if err := until(45, func() bool { return seen.count() >= 60 }, seen.text); err != nil {
		return err
	}
	for i := 0; i < 90; i++ {
		if came := seen.get(fmt.Sprint("k", i)) != nil; came != (i%3 != 1) {
			return fmt.Errorf("message %d with tag t%d came: %v", i, i%3, came)
		}
	}
	return nil
}

func sql() error {
	topic, err := createTopic("sql", 2)
	if err != nil {
		return err
	}
	for i := 0; i < 40; i++ {
		m := message(topic, "a", fmt.Sprint("k", i), "body")
		m.WithProperty("n", strconv.Itoa(i))
		if _, err := sender.SendSync(background, m); err != nil {
			return err
		}
	}
	seen, err := reading("sql", topic, consumer.MessageSelector{Type: consumer.SQL92, Expression: "n BETWEEN 10 AND 19 OR n = 33"})
	if err != nil {
		return err
	}
	if err := until(60, func() bool { return seen.count() >= 11 }, seen.text); err != nil {
		return err
	}
	if seen.count() != 11 || seen.get("k33") == nil || seen.get("k20") != nil {
		return errors.New(seen.text())
	}
	return nil
}

func longPoll() error {
	topic, err := createTopic("longpoll", 1)
	if err != nil {
		return err
	}
	var lock sync.Mutex
	var delays []int64
	c, err := flowing("longpoll", topic, func(m *primitive.MessageExt) {
		sent, _ := strconv.ParseInt(string(m.Body), 10, 64)
		lock.Lock()
		delays = append(delays, time.Now().UnixMilli()-sent)
		lock.Unlock()
	})
	if err != nil {
		return err
	}
	defer c.Shutdown()
	for i := 0; i < 10; i++ {
		if _, err := sender.SendSync(background, message(topic, "a", fmt.Sprint("k", i), strconv.FormatInt(time.Now().UnixMilli(), 10))); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	count := func() int { lock.Lock(); defer lock.Unlock(); return len(delays) }
	if err := until(10, func() bool { return count() == 10 }, func() string { return fmt.Sprint("received ", count()) }); err != nil {
		return err
	}
	sort.Slice(delays, func(i, j int) bool { return delays[i] < delays[j] })
	if delays[5] >= 500 {
		return fmt.Errorf("median delay ms %d", delays[5])
	}
	return nil
}

func ordered() error {
	topic, err := createTopic("ordered", 4)
	if err != nil {
		return err
	}
	p, err := newProducer(producer.WithGroupName(group("ordered")), producer.WithInstanceName(instance()), producer.WithNsResolver(resolver),
		producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer p.Shutdown()
	queues := map[string]map[int]bool{}
	for i := 0; i < 60; i++ {
		shard := fmt.Sprint("order-", i%6)
		r, err := p.SendSync(background, message(topic, "a", fmt.Sprint("k", i), fmt.Sprintf("%s %d", shard, i)).WithShardingKey(shard))
		if err != nil {
			return err
		}
		if queues[shard] == nil {
			queues[shard] = map[int]bool{}
		}
		queues[shard][r.MessageQueue.QueueId] = true
		if len(queues[shard]) != 1 {
			return fmt.Errorf("%s went to the queues %v", shard, queues[shard])
		}
	}
	var lock sync.Mutex
	last, count, wrong, failed := map[string]int{}, 0, "", false
	c, err := newPushConsumer(consumer.WithGroupName(group("ordered")), consumer.WithInstance(instance()), consumer.WithNsResolver(resolver),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerOrder(true))
	if err != nil {
		return err
	}
	err = c.Subscribe(topic, all, func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, m := range ms {
			if m.GetKeys() == "k20" && !failed { // once refused: the queue waits, nothing overtakes
				failed = true
				return consumer.SuspendCurrentQueueAMoment, nil
			}
			words := strings.Fields(string(m.Body))
			n, _ := strconv.Atoi(words[1])
			if before, known := last[words[0]]; known && before >= n {
				wrong = fmt.Sprintf("%s: %d after %d", words[0], n, before)
			}
			last[words[0]] = n
			count++
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer c.Shutdown()
	if err := until(60, func() bool { lock.Lock(); defer lock.Unlock(); return count == 60 }, func() string { return fmt.Sprint("received ", count) }); err != nil {
		return err
	}
	if wrong != "" || !failed {
		return errors.New(wrong)
	}
	return nil
}

func broadcast() error {
	topic, err := createTopic("broadcast", 2)
	if err != nil {
		return err
	}
	var members [2]*log
	for n := range members {
		members[n] = newLog()
		c, err := push(group("broadcast"), topic, all, members[n].add, consumer.WithConsumerModel(consumer.BroadCasting))
		if err != nil {
			return err
		}
		defer c.Shutdown()
		err = until(60, func() bool {
			_, _ = sender.SendSync(background, message(topic, "a", "warm", "first"))
			time.Sleep(100 * time.Millisecond)
			return members[n].get("warm") != nil
		}, func() string { return "the first message never came" })
		if err != nil {
			return err
		}
	}
	for i := 0; i < 20; i++ {
		if _, err := sender.SendSync(background, message(topic, "a", fmt.Sprint("k", i), "body")); err != nil {
			return err
		}
	}
	return until(30, func() bool { return members[0].count() == 21 && members[1].count() == 21 },
		func() string { return fmt.Sprint("received ", members[0].count(), " and ", members[1].count()) })
}

func rebalance() error {
	topic, err := createTopic("rebalance", 8)
	if err != nil {
		return err
	}
	var lock sync.Mutex
	queues := [2]map[int]bool{{}, {}}
	join := func(n int) (rocketmq.PushConsumer, error) {
		return push(group("rebalance"), topic, all, func(m *primitive.MessageExt) {
			lock.Lock()
			queues[n][m.Queue.QueueId] = true
			lock.Unlock()
		})
	}
	shares := func(first, second int) error {
		return until(60, func() bool {
			lock.Lock()
			queues[0], queues[1] = map[int]bool{}, map[int]bool{}
			lock.Unlock()
			for i := 0; i < 16; i++ {
				_, _ = sender.SendSync(background, message(topic, "a", fmt.Sprint("k", i), "body"))
			}
			time.Sleep(500 * time.Millisecond)
			lock.Lock()
			defer lock.Unlock()
			return len(queues[0]) == first && len(queues[1]) == second
		}, func() string { return fmt.Sprintf("queues %v, wanted %d and %d", queues, first, second) })
	}
	one, err := join(0)
	if err != nil {
		return err
	}
	if err := shares(8, 0); err != nil {
		return err
	}
	two, err := join(1)
	if err != nil {
		return err
	}
	defer two.Shutdown()
	if err := shares(4, 4); err != nil {
		return err
	}
	if err := one.Shutdown(); err != nil {
		return err
	}
	return shares(0, 8)
}

func offsetsSurvive() error {
	topic, err := createTopic("offsets", 2)
	if err != nil {
		return err
	}
	first, second := newLog(), newLog()
	fill := func(prefix string, count int) error {
		for i := 0; i < count; i++ {
			if _, err := sender.SendSync(background, message(topic, "a", fmt.Sprint(prefix, i), "body")); err != nil {
				return err
			}
		}
		return nil
	}
	if err := fill("a", 30); err != nil {
		return err
	}
	c, err := push(group("offsets"), topic, all, first.add)
	if err != nil {
		return err
	}
	if err := until(45, func() bool { return first.count() == 30 }, first.text); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond) // the last handler has to return before its offset counts
	if err := c.Shutdown(); err != nil {
		return err
	}
	if err := fill("b", 10); err != nil {
		return err
	}
	c, err = push(group("offsets"), topic, all, second.add)
	if err != nil {
		return err
	}
	defer c.Shutdown()
	if err := until(60, func() bool { return second.count() >= 10 }, second.text); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond)
	if second.get("a0") != nil || second.count() != 10 {
		return fmt.Errorf("read again: %s", second.text())
	}
	return nil
}

func delay() error {
	topic, err := createTopic("delay", 1)
	if err != nil {
		return err
	}
	var lock sync.Mutex
	took := map[string]int64{}
	c, err := flowing("delay", topic, func(m *primitive.MessageExt) {
		lock.Lock()
		took[m.GetKeys()] = time.Now().UnixMilli() - m.BornTimestamp
		lock.Unlock()
	})
	if err != nil {
		return err
	}
	defer c.Shutdown()
	for _, level := range []int{1, 2, 0} {
		m := message(topic, "a", fmt.Sprint("level", level), "body")
		if level > 0 {
			m.WithDelayTimeLevel(level)
		}
		if _, err := sender.SendSync(background, m); err != nil {
			return err
		}
	}
	if err := until(20, func() bool { lock.Lock(); defer lock.Unlock(); return len(took) == 3 }, func() string { return fmt.Sprint("arrived ", took) }); err != nil {
		return err
	}
	within := func(key string, low, high int64) bool { return took[key] >= low && took[key] < high }
	if !within("level0", 0, 900) || !within("level1", 900, 3000) || !within("level2", 4900, 8000) {
		return fmt.Errorf("took %v ms", took)
	}
	return nil
}

func retryDeadLetter() error {
	topic, err := createTopic("retry", 1)
	if err != nil {
		return err
	}
	var lock sync.Mutex
	var tries []int32
	name := group("retry")
	// The broker makes the retry topic when the group appears, and this client looks for new routes every 30 s: with the
	// topic there from the start the story takes seconds. That the broker makes it is in the stories of the other clients.
	if err := updateTopic("%RETRY%"+name, 1); err != nil {
		return err
	}
	c, err := newPushConsumer(consumer.WithGroupName(name), consumer.WithInstance(instance()), consumer.WithNsResolver(resolver),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithMaxReconsumeTimes(2))
	if err != nil {
		return err
	}
	err = c.Subscribe(topic, all, func(ctx context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if ms[0].GetKeys() == "good" {
			return consumer.ConsumeSuccess, nil
		}
		lock.Lock()
		tries = append(tries, ms[0].ReconsumeTimes)
		lock.Unlock()
		if concurrently, known := primitive.GetConcurrentlyCtx(ctx); known {
			concurrently.DelayLevelWhenNextConsume = 1
		}
		return consumer.ConsumeRetryLater, nil
	})
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer c.Shutdown()
	for _, key := range []string{"bad", "good"} {
		if _, err := sender.SendSync(background, message(topic, "a", key, "body")); err != nil {
			return err
		}
	}
	if err := until(75, func() bool { lock.Lock(); defer lock.Unlock(); return len(tries) >= 3 }, func() string { return fmt.Sprint("tried ", tries) }); err != nil {
		return err
	}
	if fmt.Sprint(tries) != "[0 1 2]" {
		return fmt.Errorf("tries %v", tries)
	}
	dead := "%DLQ%" + name
	if err := updateTopic(dead, 1); err != nil { // dead letters are write-only; permission 6 lets us look
		return err
	}
	seen, err := reading("dead", dead, all)
	if err != nil {
		return err
	}
	if err := until(45, func() bool { return seen.get("bad") != nil }, func() string { return "no dead letter" }); err != nil {
		return err
	}
	if got := seen.get("bad").GetProperty(primitive.PropertyRetryTopic); got != topic {
		return fmt.Errorf("dead letter of %s", got)
	}
	return nil
}

type listener struct {
	execute func(*primitive.Message) primitive.LocalTransactionState
	check   func(*primitive.MessageExt) primitive.LocalTransactionState
}

func (l *listener) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return l.execute(m)
}

func (l *listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	return l.check(m)
}

func transactional(name string, l *listener) (rocketmq.TransactionProducer, error) {
	p, err := rocketmq.NewTransactionProducer(l, signing(producer.WithGroupName(group(name)), producer.WithInstanceName(instance()), producer.WithNsResolver(resolver))...)
	if err == nil {
		err = p.Start()
	}
	return p, err
}

func unknown(*primitive.MessageExt) primitive.LocalTransactionState { return primitive.UnknowState }

func transaction() error {
	topic, err := createTopic("tx", 2)
	if err != nil {
		return err
	}
	p, err := transactional("tx", &listener{func(m *primitive.Message) primitive.LocalTransactionState {
		if strings.HasPrefix(string(m.Body), "commit") {
			return primitive.CommitMessageState
		}
		return primitive.RollbackMessageState
	}, unknown})
	if err != nil {
		return err
	}
	defer p.Shutdown()
	for i := 0; i < 20; i++ {
		body := []string{"commit", "rollback"}[i%2]
		if _, err := p.SendMessageInTransaction(background, message(topic, "a", fmt.Sprint("k", i), body)); err != nil {
			return err
		}
	}
	seen, err := reading("tx", topic, all)
	if err != nil {
		return err
	}
	if err := until(45, func() bool { return seen.count() >= 10 }, seen.text); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond)
	for i := 0; i < 20; i++ {
		if visible := seen.get(fmt.Sprint("k", i)) != nil; visible != (i%2 == 0) {
			return fmt.Errorf("message %d visible: %v", i, visible)
		}
	}
	return nil
}

func transactionCheck() error {
	topic, err := createTopic("txcheck", 1)
	if err != nil {
		return err
	}
	var lock sync.Mutex
	asked := map[string]int{}
	p, err := transactional("txcheck", &listener{
		func(*primitive.Message) primitive.LocalTransactionState { return primitive.UnknowState },
		func(m *primitive.MessageExt) primitive.LocalTransactionState {
			lock.Lock()
			defer lock.Unlock()
			asked[m.GetKeys()]++
			switch {
			case m.GetKeys() == "rollback":
				return primitive.RollbackMessageState
			case asked[m.GetKeys()] < 2:
				return primitive.UnknowState
			default:
				return primitive.CommitMessageState
			}
		}})
	if err != nil {
		return err
	}
	defer p.Shutdown()
	for _, key := range []string{"commit", "rollback"} {
		if _, err := p.SendMessageInTransaction(background, message(topic, "a", key, "asked")); err != nil {
			return err
		}
	}
	seen, err := reading("txcheck", topic, all)
	if err != nil {
		return err
	}
	if err := until(90, func() bool { return seen.count() >= 1 }, func() string { return fmt.Sprint("asked ", asked) }); err != nil {
		return err
	}
	lock.Lock()
	defer lock.Unlock()
	if seen.get("commit") == nil || asked["commit"] < 2 {
		return fmt.Errorf("asked %v, visible %s", asked, seen.text())
	}
	return nil
}

func requestReply() error {
	topic, err := createTopic("request", 1)
	if err != nil {
		return err
	}
	start := func(name string) (rocketmq.Producer, error) {
		p, err := newProducer(producer.WithGroupName(group(name)), producer.WithInstanceName(instance()), producer.WithNsResolver(resolver))
		if err == nil {
			err = p.Start()
		}
		return p, err
	}
	replier, err := start("reply")
	if err != nil {
		return err
	}
	defer replier.Shutdown()
	requester, err := start("request")
	if err != nil {
		return err
	}
	defer requester.Shutdown()
	c, err := flowing("request", topic, func(m *primitive.MessageExt) {
		reply, err := consumer.CreateReplyMessage(m, nil)
		if err == nil {
			reply.Body = append([]byte("re: "), m.Body...) // v2.1.2 takes a body and forgets it
			_, _ = replier.SendSync(background, reply)
		}
	})
	if err != nil {
		return err
	}
	defer c.Shutdown()
	var answer *primitive.Message
	// The reply finds its way only after the requester's heartbeat, which comes every 30 s.
	err = until(75, func() bool {
		answer, err = requester.Request(background, 3*time.Second, message(topic, "a", "k", "are you there"))
		return err == nil
	}, func() string { return fmt.Sprint(err) })
	if err != nil {
		return err
	}
	if string(answer.Body) != "re: are you there" {
		return fmt.Errorf("reply %q", answer.Body)
	}
	return nil
}

// ---- clients, signing when the environment brings credentials ----------------------------------------------------------

var credentials = primitive.Credentials{AccessKey: os.Getenv("ROCKETMQ_ACCESS_KEY"), SecretKey: os.Getenv("ROCKETMQ_SECRET_KEY")}

func signing(options ...producer.Option) []producer.Option {
	if credentials.IsEmpty() {
		return options
	}
	return append(options, producer.WithCredentials(credentials))
}

func signingConsumer(options []consumer.Option) []consumer.Option {
	if credentials.IsEmpty() {
		return options
	}
	return append(options, consumer.WithCredentials(credentials))
}

func newProducer(options ...producer.Option) (rocketmq.Producer, error) {
	return rocketmq.NewProducer(signing(options...)...)
}

func newPushConsumer(options ...consumer.Option) (rocketmq.PushConsumer, error) {
	return rocketmq.NewPushConsumer(signingConsumer(options)...)
}

func newPullConsumer(options ...consumer.Option) (rocketmq.PullConsumer, error) {
	return rocketmq.NewPullConsumer(signingConsumer(options)...)
}

// ---- helpers ----------------------------------------------------------------------------------------------------------

var all = consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}

func group(name string) string { return "GID_go_" + name + "_" + run }

// A client of its own for every producer and consumer: those of one instance share connections and callbacks.
func instance() string { return fmt.Sprintf("%s-%d", run, instances.Add(1)) }

func message(topic, tag, key, body string) *primitive.Message {
	return primitive.NewMessage(topic, []byte(body)).WithTag(tag).WithKeys([]string{key})
}

// One request by hand: v2.1.2's admin client does not check the answer and never signs.
func updateTopic(topic string, queues int) error {
	fields := map[string]string{"topic": topic, "defaultTopic": "TBW102", "readQueueNums": strconv.Itoa(queues),
		"writeQueueNums": strconv.Itoa(queues), "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
	if !credentials.IsEmpty() {
		fields["AccessKey"] = credentials.AccessKey
		var names []string
		for name := range fields {
			names = append(names, name)
		}
		sort.Strings(names)
		mac := hmac.New(sha1.New, []byte(credentials.SecretKey))
		for _, name := range names {
			mac.Write([]byte(fields[name]))
		}
		fields["Signature"] = base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	header, err := json.Marshal(map[string]any{"code": 17, "flag": 0, "language": "JAVA", "opaque": 1, "version": 401, "extFields": fields})
	if err != nil {
		return err
	}
	link, err := net.DialTimeout("tcp", broker, 15*time.Second)
	if err != nil {
		return err
	}
	defer link.Close()
	_ = link.SetDeadline(time.Now().Add(15 * time.Second))
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)))
	frame = append(binary.BigEndian.AppendUint32(frame, uint32(len(header))), header...)
	if _, err := link.Write(frame); err != nil {
		return err
	}
	sizes := make([]byte, 8)
	if _, err := io.ReadFull(link, sizes); err != nil {
		return err
	}
	answer := make([]byte, binary.BigEndian.Uint32(sizes[4:])&0xffffff)
	if _, err := io.ReadFull(link, answer); err != nil {
		return err
	}
	var read struct {
		Code   int
		Remark string
	}
	if err := json.Unmarshal(answer, &read); err != nil || read.Code != 0 {
		return fmt.Errorf("creating %s: %d %s %v", topic, read.Code, read.Remark, err)
	}
	return nil
}

func createTopic(name string, queues int) (string, error) {
	topic := "go_" + name + "_" + run
	if err := updateTopic(topic, queues); err != nil {
		return topic, err
	}
	a, err := admin.NewAdmin(admin.WithResolver(resolver))
	if err != nil {
		return topic, err
	}
	return topic, until(15, func() bool {
		found, err := a.FetchPublishMessageQueues(background, topic)
		return err == nil && len(found) == queues
	}, func() string { return topic + " has no route" })
}

func brokerName(topic string) string {
	a, err := admin.NewAdmin(admin.WithResolver(resolver))
	if err != nil {
		return ""
	}
	found, err := a.FetchPublishMessageQueues(background, topic)
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0].BrokerName
}

// What a consumer has seen, by message key.
type log struct {
	lock sync.Mutex
	seen map[string]*primitive.MessageExt
}

func newLog() *log { return &log{seen: map[string]*primitive.MessageExt{}} }

func (l *log) add(m *primitive.MessageExt) {
	l.lock.Lock()
	l.seen[m.GetKeys()] = m
	l.lock.Unlock()
}

func (l *log) count() int { l.lock.Lock(); defer l.lock.Unlock(); return len(l.seen) }

func (l *log) get(key string) *primitive.MessageExt {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.seen[key]
}

func (l *log) text() string { return fmt.Sprint("received ", l.count()) }

func push(groupName, topic string, selector consumer.MessageSelector, handle func(*primitive.MessageExt), options ...consumer.Option) (rocketmq.PushConsumer, error) {
	options = append(options, consumer.WithGroupName(groupName), consumer.WithInstance(instance()), consumer.WithNsResolver(resolver),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	c, err := newPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	err = c.Subscribe(topic, selector, func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range ms {
			handle(m)
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return nil, err
	}
	return c, c.Start()
}

// A push consumer that has received its first message: with upstream's broker this can take 30 s.
func flowing(name, topic string, handle func(*primitive.MessageExt)) (rocketmq.PushConsumer, error) {
	var first atomic.Bool
	c, err := push(group(name), topic, all, func(m *primitive.MessageExt) {
		if m.GetKeys() == "warm" {
			first.Store(true)
		} else {
			handle(m)
		}
	})
	if err != nil {
		return nil, err
	}
	if _, err := sender.SendSync(background, message(topic, "a", "warm", "first")); err != nil {
		return nil, err
	}
	return c, until(60, first.Load, func() string { return "the first message never came" })
}

// Reads a topic from its beginning, until the program ends.
func reading(name, topic string, selector consumer.MessageSelector) (*log, error) {
	seen := newLog()
	_, err := push(group("read_"+name), topic, selector, seen.add)
	return seen, err
}

func readsBack(name, topic string, count int) error {
	seen, err := reading(name, topic, all)
	if err != nil {
		return err
	}
	return until(45, func() bool { return seen.count() == count }, seen.text)
}

func until(seconds int, condition func() bool, why func() string) error {
	deadline := time.Now().Add(time.Duration(patience*seconds) * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			return fmt.Errorf("after %d s: %s", patience*seconds, why())
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func main() {
	if len(os.Args) < 3 {
		fmt.Println("scenarios NAMESRV BROKER_ADDR [NAME ...]")
		os.Exit(2)
	}
	namesrv, broker = os.Args[1], os.Args[2]
	rlog.SetLogLevel("fatal")
	resolver = primitive.NewPassthroughResolver([]string{namesrv})
	var err error
	if sender, err = newProducer(producer.WithGroupName(group("p")), producer.WithInstanceName(instance()), producer.WithNsResolver(resolver)); err == nil {
		err = sender.Start()
	}
	if err != nil {
		fmt.Println("no producer:", err)
		os.Exit(2)
	}
	wanted := map[string]bool{}
	for _, name := range os.Args[3:] {
		wanted[name] = true
	}
	var told sync.WaitGroup
	var lock sync.Mutex
	passed, failed := 0, 0
	for _, s := range stories {
		if len(wanted) > 0 && !wanted[s.name] {
			continue
		}
		told.Add(1)
		go func(s story) {
			defer told.Done()
			began := time.Now()
			err := s.tell()
			lock.Lock()
			defer lock.Unlock()
			if err == nil {
				passed++
				fmt.Printf("ok %s (%.1f s)\n", s.name, time.Since(began).Seconds())
			} else {
				failed++
				fmt.Printf("FAIL %s: %v\n", s.name, err)
			}
		}(s)
	}
	told.Wait()
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
