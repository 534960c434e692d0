package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func describeTopic(ctx context.Context, admin *kadm.Client, name string) (any, error) {
	topics, err := admin.ListTopics(ctx, name)
	if err != nil {
		return nil, err
	}
	topic := topics[name]
	if topic.Err != nil {
		return nil, topic.Err
	}
	partitions := map[string]any{}
	for _, one := range topic.Partitions {
		partitions[fmt.Sprint(one.Partition)] = map[string]any{
			"leader": one.Leader, "replicas": one.Replicas, "isr": one.ISR,
		}
	}
	return partitions, nil
}

func describeConfigs(ctx context.Context, admin *kadm.Client, name string) (any, error) {
	resources, err := admin.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return nil, err
	}
	resource, err := resources.On(name, nil)
	if err != nil {
		return nil, err
	}
	if resource.Err != nil {
		return nil, resource.Err
	}
	configs := map[string]*string{}
	for _, one := range resource.Configs {
		configs[one.Key] = one.Value
	}
	return configs, nil
}

func alterConfigs(ctx context.Context, admin *kadm.Client, asked *command) error {
	var changes []kadm.AlterConfig
	for name, value := range asked.Configs {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value})
	}
	answers, err := admin.AlterTopicConfigs(ctx, changes, asked.Topic)
	if err != nil {
		return err
	}
	answer, err := answers.On(asked.Topic, nil)
	if err != nil {
		return err
	}
	return answer.Err
}

func describeCluster(ctx context.Context, admin *kadm.Client) (any, error) {
	metadata, err := admin.BrokerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	nodes := [][2]any{}
	for _, one := range metadata.Brokers {
		nodes = append(nodes, [2]any{one.NodeID, fmt.Sprintf("%s:%d", one.Host, one.Port)})
	}
	return map[string]any{"controller": metadata.Controller, "nodes": nodes}, nil
}

func listOffset(ctx context.Context, client *kgo.Client, asked *command) (any, error) {
	request := kmsg.NewListOffsetsRequest()
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = asked.Topic
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Partition = asked.Partition
	partition.Timestamp = asked.Timestamp
	topic.Partitions = append(topic.Partitions, partition)
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	found := response.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(found.ErrorCode); err != nil {
		return nil, err
	}
	return found.Offset, nil
}
