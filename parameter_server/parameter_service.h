#pragma once

// Internal: only sources of the library need it.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/parameter_server/parameter_requests.h"
#include "lockstep/parameter_server/parameter_shard.h"
#include "lockstep/runtime/mutex.h"

namespace lockstep {

/// The shards of one parameter server, and what its clients can ask of them. Thread-safe: requests for
/// different shards run at the same time.
class ParameterService {
 public:
  /// Answers a ParameterRequest: an RpcServer's handler. Throws InvalidArgument for what is none, naming a
  /// shard that is not there, and what ParameterShard throws; CreateShard, for a shard that is there with
  /// another shape, dtype or rule.
  RpcMessage handle(const RpcMessage& request);

  /// In alphabetical order.
  std::vector<std::string> shard_names() const;
  /// Throws InvalidArgument for a shard that is not there.
  std::shared_ptr<ParameterShard> shard(const std::string& name) const;

 private:
  RpcMessage answer(const CreateShard& request);
  RpcMessage answer(const PullShards& request) const;
  RpcMessage answer(const PushShards& request);
  RpcMessage answer(const ForgetPushes& request);

  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<ParameterShard>> shards_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
