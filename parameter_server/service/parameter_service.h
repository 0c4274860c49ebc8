#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/service/parameter_requests.h"
#include "lockstep/parameter_server/service/step_collector.h"
#include "lockstep/parameter_server/shards/parameter_shard.h"
#include "lockstep/parameter_server/shards/shard_storage.h"
#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

/// The shards of one parameter server, and what its clients can ask of them. Thread-safe: requests for
/// different shards run at the same time.
class ParameterService {
 public:
  /// Without a storage nothing is saved, and SaveShards is refused. `on_end` is called for EndServing, by any
  /// thread, and must not wait for the server's end; empty: nothing is done.
  explicit ParameterService(std::shared_ptr<ShardStorage> storage = nullptr,
                            std::function<void()> on_end = {})
      : storage_(std::move(storage)), on_end_(std::move(on_end)) {}

  /// Holds a shard that was saved, before its clients come. They may cut the variable otherwise: once they
  /// make a shard of it that is not there, those are given up that nobody has asked for. Throws
  /// InvalidArgument for a name that is taken.
  void restore(HeldShard shard);

  /// Answers a ParameterRequest: an RpcServer's handler. Throws InvalidArgument for what is none, naming a
  /// shard that is not there, and what ParameterShard and ShardStorage throw; CreateShard, for a shard that
  /// is there with other rows, another shape, dtype or rule.
  RpcMessage handle(const RpcMessage& request);

  /// In alphabetical order.
  std::vector<std::string> shard_names() const;
  /// Throws InvalidArgument for a shard that is not there.
  std::shared_ptr<ParameterShard> shard(const std::string& name) const;

 private:
  RpcMessage answer(const CreateShard& request);
  RpcMessage answer(const PullShards& request) const;
  RpcMessage answer(const PushShards& request);
  PushResult push(const PushId& id, const PushShards::Part& part);
  RpcMessage answer(const ForgetPushes& request);
  RpcMessage answer(const SaveShards& request) const;
  RpcMessage answer(const ContributeShards& request);
  RpcMessage answer(const CommitStep& request);
  RpcMessage answer(const EndServing& request) const;

  struct PresentShard {
    std::shared_ptr<ParameterShard> shard;
    bool was_restored = false;  // and is asked for for the first time since
  };
  PresentShard present_shard(const CreateShard& request);
  std::vector<HeldShard> all_shards() const;

  const std::shared_ptr<ShardStorage> storage_;
  const std::function<void()> on_end_;
  StepCollector collector_;
  Mutex commit_mutex_;  // held while a step is made, so that nobody is told before that it is
  mutable Mutex mutex_;
  std::map<std::string, HeldShard> shards_ LOCKSTEP_GUARDED_BY(mutex_);
  mutable std::set<std::string> unclaimed_ LOCKSTEP_GUARDED_BY(mutex_);  // restored, and not asked for since
};

}  // namespace lockstep
