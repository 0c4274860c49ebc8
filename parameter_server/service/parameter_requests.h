#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/parameter_server/shards/parameter_shard.h"
#include "lockstep/parameter_server/variables/initial_values.h"
#include "lockstep/parameter_server/variables/partitioner.h"
#include "lockstep/parameter_server/variables/update_rule.h"
#include "lockstep/runtime/rpc/rpc_message.h"

namespace lockstep {

/// Makes a shard, unless there is one of the name: from what was saved of its rows, and else anew.
struct CreateShard {
  std::string shard;
  std::string variable;
  RowRange rows;  ///< of the variable; a scalar is row 0
  /// What it begins with, or, with `initial`, no row of such values.
  at::Tensor values;
  std::optional<InitialValues> initial;
  UpdateRule rule;
  /// Of a table whose values the server makes; one that takes all rows is none.
  RowFilter filter{};

  std::optional<FilteredRows> filtered() const {
    if (!initial || filter.takes_all()) return std::nullopt;
    return FilteredRows{filter, *initial, rows};
  }
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

/// Gradients of one of the workers that make a step together, each in a slot of its own. See StepCollector.
struct ContributeShards {
  uint64_t step = 0;
  uint32_t slot = 0;
  bool is_last = true;  ///< whether these are the last ones of the slot
  std::vector<PushShards::Part> parts;
};

/// Makes the step, once all slots have given their gradients, with their sum.
struct CommitStep {
  uint64_t step = 0;
  uint32_t num_slots = 1;
};

/// See AppliedPushes::forget_before(); of all shards.
struct ForgetPushes {
  uint64_t before_closure = 0;
};

/// See ShardStorage::save(); of all shards.
struct SaveShards {
  std::string folder;
};

/// The job is over: the server is to end.
struct EndServing {};

/// What a parameter server is asked for.
using ParameterRequest = std::variant<CreateShard, PullShards, PushShards, ForgetPushes, SaveShards,
                                      ContributeShards, CommitStep, EndServing>;

RpcMessage encode_request(const ParameterRequest& request);
/// Throws InvalidArgument for what encode_request() does not write. Names, rows and gradients are the shards'
/// to check.
ParameterRequest decode_request(const RpcMessage& message);

/// What came of CreateShard.
enum class ShardOrigin : uint8_t {
  kPresent = 0,   ///< there was one already
  kNew = 1,       ///< it begins with the values that were asked for
  kRestored = 2,  ///< it goes on from what was saved
};
struct CreatedShard {
  ShardOrigin origin = ShardOrigin::kNew;
  std::string source;  ///< where what was saved is from, see ShardStorage::source()
};
RpcMessage encode_created(const CreatedShard& created);
CreatedShard decode_created(const RpcMessage& message);

/// In the order of the parts; the same holds for what follows.
RpcMessage encode_pulled(const std::vector<ParameterShard::Pulled>& pulled);
std::vector<ParameterShard::Pulled> decode_pulled(const RpcMessage& message);

RpcMessage encode_pushed(const std::vector<PushResult>& results);
std::vector<PushResult> decode_pushed(const RpcMessage& message);

/// The slots that a step waits for; none: it is made.
RpcMessage encode_committed(const std::vector<uint32_t>& missing);
std::vector<uint32_t> decode_committed(const RpcMessage& message);

/// What ShardStorage::save() returned.
RpcMessage encode_saved(const std::string& text);
std::string decode_saved(const RpcMessage& message);

}  // namespace lockstep
