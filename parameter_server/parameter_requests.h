#pragma once

// Internal: only sources of the library need it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/parameter_server/parameter_shard.h"
#include "lockstep/parameter_server/rpc_message.h"
#include "lockstep/parameter_server/update_rule.h"

namespace lockstep {

/// Makes a shard, unless there is one of the name.
struct CreateShard {
  std::string shard;
  at::Tensor values;
  UpdateRule rule;
};

/// Values of several shards.
struct PullShards {
  struct Part {
    std::string shard;
    at::Tensor rows;  ///< see ParameterShard::pull_rows(); undefined: all
  };
  std::vector<Part> parts;
};

/// Steps of several shards. Where one is refused, those before it in the list have been done.
struct PushShards {
  struct Part {
    std::string shard;
    at::Tensor rows;  ///< see ParameterShard::push_rows(); undefined: all
    at::Tensor gradient;
    double lr = 0;
    uint64_t version = 0;
  };
  PushId id;
  std::vector<Part> parts;
};

/// See AppliedPushes::forget_before(); of all shards.
struct ForgetPushes {
  uint64_t before_closure = 0;
};

/// What a parameter server is asked for.
using ParameterRequest = std::variant<CreateShard, PullShards, PushShards, ForgetPushes>;

RpcMessage encode_request(const ParameterRequest& request);
/// Throws InvalidArgument for what encode_request() does not write. Names, rows and gradients are the shards'
/// to check.
ParameterRequest decode_request(const RpcMessage& message);

/// Whether there was none before.
RpcMessage encode_created(bool is_new);
bool decode_created(const RpcMessage& message);

/// In the order of the parts; the same holds for what follows.
RpcMessage encode_pulled(const std::vector<ParameterShard::Pulled>& pulled);
std::vector<ParameterShard::Pulled> decode_pulled(const RpcMessage& message);

RpcMessage encode_pushed(const std::vector<PushResult>& results);
std::vector<PushResult> decode_pushed(const RpcMessage& message);

}  // namespace lockstep
