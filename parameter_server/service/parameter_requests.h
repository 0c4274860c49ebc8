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
#include "lockstep/parameter_server/variables/row_growth.h"
#include "lockstep/parameter_server/variables/update_rule.h"
#include "lockstep/runtime/rpc/rpc_message.h"

namespace lockstep {

/// Creates a shard unless one of this name exists: from its saved rows if there are any, otherwise new.
struct CreateShard {
  std::string shard;
  std::string variable;
  RowRange rows;  ///< rows of the variable; a scalar is row 0
  /// Initial values; if `initial` is set, no rows, only their shape and dtype.
  at::Tensor values;
  std::optional<InitialValues> initial;
  UpdateRule rule;
  /// For a table whose values the server generates. A filter that takes all rows counts as none, unless the
  /// table grows.
  RowFilter filter{};
  /// For a table that grows: its limit is that of this shard.
  std::optional<RowGrowth> growth{};

  std::optional<FilteredRows> filtered() const {
    if (!initial || (filter.takes_all() && !growth)) return std::nullopt;
    return FilteredRows{filter, *initial, rows};
  }
};

/// Requests values of several shards.
struct PullShards {
  struct Part {
    std::string shard;
    at::Tensor rows;  ///< see ParameterShard::pull_rows(); undefined: all
  };
  std::vector<Part> parts;
};

/// Steps several shards. If one is refused, those before it in the list have been stepped.
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

/// Gradients from one slot of a step that several workers make together. See StepCollector.
struct ContributeShards {
  uint64_t step = 0;
  uint32_t slot = 0;
  bool is_last = true;  ///< whether this is the slot's last message
  std::vector<PushShards::Part> parts;
};

/// Makes the step with the sum of all slots' gradients once all slots have contributed.
struct CommitStep {
  uint64_t step = 0;
  uint32_t num_slots = 1;
};

/// Calls AppliedPushes::forget_before() on all shards.
struct ForgetPushes {
  uint64_t before_closure = 0;
};

/// Calls ShardStorage::save() with all shards.
struct SaveShards {
  std::string folder;
};

/// Ends the server because the job is over.
struct EndServing {};

/// A request to a parameter server.
using ParameterRequest = std::variant<CreateShard, PullShards, PushShards, ForgetPushes, SaveShards,
                                      ContributeShards, CommitStep, EndServing>;

RpcMessage encode_request(const ParameterRequest& request);
/// Throws InvalidArgument if encode_request() did not write the message. Does not check names, rows and
/// gradients; the shards do.
ParameterRequest decode_request(const RpcMessage& message);

/// How CreateShard got its shard.
enum class ShardOrigin : uint8_t {
  kPresent = 0,   ///< it already existed
  kNew = 1,       ///< it starts with the requested values
  kRestored = 2,  ///< it resumes from saved values
};
struct CreatedShard {
  ShardOrigin origin = ShardOrigin::kNew;
  std::string source;  ///< where saved values are from; see ShardStorage::source()
};
RpcMessage encode_created(const CreatedShard& created);
CreatedShard decode_created(const RpcMessage& message);

/// In the order of the request's parts, like the results below.
RpcMessage encode_pulled(const std::vector<ParameterShard::Pulled>& pulled);
std::vector<ParameterShard::Pulled> decode_pulled(const RpcMessage& message);

RpcMessage encode_pushed(const std::vector<PushResult>& results);
std::vector<PushResult> decode_pushed(const RpcMessage& message);

/// The slots that a step still waits for; empty: the step is made.
RpcMessage encode_committed(const std::vector<uint32_t>& missing);
std::vector<uint32_t> decode_committed(const RpcMessage& message);

/// The result of ShardStorage::save().
RpcMessage encode_saved(const std::string& text);
std::string decode_saved(const RpcMessage& message);

}  // namespace lockstep
