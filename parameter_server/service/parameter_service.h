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

/// Holds the shards of one parameter server and answers its clients' requests. Thread-safe: requests for
/// different shards run concurrently.
class ParameterService {
 public:
  /// Without a storage, nothing is saved and SaveShards is refused. EndServing calls `on_end` from any
  /// thread; it must not wait for the server's end. Empty: nothing is called. Rows of tables that grow go to
  /// `disk`, if there is one, when their limit of memory has no room for them.
  explicit ParameterService(std::shared_ptr<ShardStorage> storage = nullptr,
                            std::function<void()> on_end = {}, std::shared_ptr<RowDisk> disk = nullptr)
      : storage_(std::move(storage)), on_end_(std::move(on_end)), disk_(std::move(disk)) {}

  /// Adds a saved shard before clients connect. Clients may split the variable differently: when they create
  /// a shard of it that does not exist, restored shards that nobody has requested yet are dropped. Throws
  /// InvalidArgument if the name is taken.
  void restore(HeldShard shard);

  /// Answers a ParameterRequest; use it as an RpcServer's handler. Throws InvalidArgument for an invalid
  /// request or a shard that does not exist (naming it), and what ParameterShard and ShardStorage throw.
  /// CreateShard also throws it if the shard exists with other rows, shape, dtype or rule.
  RpcMessage handle(const RpcMessage& request);

  /// Returns the names in alphabetical order.
  std::vector<std::string> shard_names() const;
  /// Throws InvalidArgument if the shard does not exist.
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
    bool was_restored = false;  // whether it was restored and is requested for the first time since
  };
  PresentShard present_shard(const CreateShard& request);
  std::vector<HeldShard> all_shards() const;

  const std::shared_ptr<ShardStorage> storage_;
  const std::function<void()> on_end_;
  const std::shared_ptr<RowDisk> disk_;
  StepCollector collector_;
  Mutex commit_mutex_;  // held while a step is made, so that nobody is told earlier that it is made
  mutable Mutex mutex_;
  std::map<std::string, HeldShard> shards_ LOCKSTEP_GUARDED_BY(mutex_);
  mutable std::set<std::string> unclaimed_ LOCKSTEP_GUARDED_BY(mutex_);  // restored, and not requested since
};

}  // namespace lockstep
