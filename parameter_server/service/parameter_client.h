#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/parameter_server/service/parameter_requests.h"
#include "lockstep/parameter_server/variables/partitioner.h"
#include "lockstep/parameter_server/variables/row_growth.h"
#include "lockstep/parameter_server/variables/server_placement.h"
#include "lockstep/runtime/rpc/rpc_client.h"

namespace lockstep {

struct ParameterClientOptions {
  std::vector<RpcClientOptions> servers;
  /// Null: no variable is split.
  std::shared_ptr<const Partitioner> partitioner;
  ServerPlacementPolicy placement = ServerPlacementPolicy::kRoundRobin;
};

/// Variables on parameter servers, split into shards, as seen by one process. All processes must add the same
/// variables in the same order, so that they find each shard on the same server. Each exchange sends one
/// message per two megabytes to each server involved, at least one. Servers process them concurrently, and
/// while further messages and answers are in transit.
///
/// If a server is lost, the client reconnects and repeats the request: pulling changes nothing, and a push is
/// applied at most once. Not thread-safe.
class ParameterClient {
 public:
  /// Blocks until all servers have been reached. Throws as RpcClient does.
  explicit ParameterClient(const ParameterClientOptions& options);

  /// Outcome of create().
  struct CreateSummary {
    int64_t num_new = 0;            ///< shards that start with the given values
    int64_t num_restored = 0;       ///< shards that resume from saved values
    std::set<std::string> sources;  ///< where the saved values are from; see ShardStorage::source()
  };

  /// Adds a variable and returns its number. Does not communicate. A table that grows is cut into one shard
  /// for each server, which gets an equal part of the memory. Throws InvalidArgument if the name is taken.
  int add_variable(const std::string& name, std::vector<int64_t> sizes, at::ScalarType dtype = at::kFloat,
                   const std::optional<RowGrowth>& growth = std::nullopt);

  /// Puts the variable on the servers. A shard that exists or was saved keeps its values; others start with
  /// `values`. Blocks. Throws InvalidArgument if `values` has another shape or dtype, and what the servers
  /// throw.
  CreateSummary create(int variable, const at::Tensor& values, const UpdateRule& rule);
  /// Same, but the servers generate the values; for a table whose rows are trained as the filter says, and
  /// the only way for a table that grows. Also throws InvalidArgument for a scalar.
  CreateSummary create(int variable, const InitialValues& values, const UpdateRule& rule,
                       const RowFilter& filter = {});

  /// Saves all shards. Each server writes to the subfolder `folder` of its own folder; the caller must have
  /// created it. Returns each server's answer; see ShardStorage::save(). Blocks until all have answered, so
  /// the servers' call_timeout must be long enough.
  std::vector<std::string> save(const std::string& folder);

  struct Wanted {
    int variable = 0;
    /// Indices of the first axis, a strictly ascending int64 vector; undefined: all rows.
    at::Tensor rows;
    bool pinned = false;  ///< whether the values go into pinned memory; see pinned_for()
  };
  struct Pulled {
    at::Tensor values;               ///< all rows, or those wanted in their order
    std::vector<uint64_t> versions;  ///< one per shard; kNotRead if no row of the shard was wanted
  };
  /// Stands for the version of a shard of which nothing was read. It is newer than all versions.
  static constexpr uint64_t kNotRead = std::numeric_limits<uint64_t>::max();
  /// Adds a read of the same variable to `versions`, which are empty before the first one: each shard keeps
  /// the older version.
  static void keep_older(std::vector<uint64_t>& versions, const std::vector<uint64_t>& read);
  /// Reads values. Blocks. Throws InvalidArgument naming the variable for invalid rows, PeerLost naming a
  /// server that can no longer be reached, and what the servers throw. Before it throws, it reads the answers
  /// of all servers that are not lost, so you can continue to use the client.
  std::vector<Pulled> pull(const std::vector<Wanted>& wanted);

  struct Gradient {
    int variable = 0;
    at::Tensor rows;                 ///< as in Wanted
    at::Tensor values;               ///< as in Pulled
    std::vector<uint64_t> versions;  ///< as in Pulled: of the values that the gradient was computed with
    double lr = 0;
  };
  struct PushSummary {
    std::vector<uint64_t> staleness;  ///< of each shard's applied step, in no particular order
    int64_t num_repeated = 0;         ///< shards that had already applied this push
    int64_t num_outdated = 0;         ///< outdated shards; see PushOutcome::kOutdated
  };
  /// Steps every variable by its gradient unless this push was applied before. Blocks. Throws as pull() does;
  /// some shards may have been stepped then, and the same push does not step them again.
  PushSummary push(const PushId& id, const std::vector<Gradient>& gradients);

  /// Contributes a slot's gradients to a step that several workers make together; does not step. Blocks.
  /// Throws as push() does. Any worker may repeat the call for the slot; it replaces the earlier gradients.
  void contribute(uint64_t step, uint32_t slot, const std::vector<Gradient>& gradients);
  /// Makes the step with the sum of slots 0 to `num_slots` - 1, added in that order. Returns the slots whose
  /// gradients are missing on some server. Other servers may have made the step then; call it again once the
  /// missing slots have contributed. Only one process of the job may call it. Blocks. Throws as push() does.
  std::vector<uint32_t> commit(uint64_t step, uint32_t num_slots);

  /// Calls AppliedPushes::forget_before() on all servers. Blocks.
  void forget_before(uint64_t closure);
  /// Tells all reachable servers to end. Blocks until they have been told. Do not use the client afterwards.
  void end_servers();

  int num_servers() const { return static_cast<int>(servers_.size()); }
  /// Returns how often the client has reconnected to a lost server.
  int64_t num_reconnects() const { return num_reconnects_; }
  /// Returns the servers that hold the variable's shards.
  std::vector<int> servers_of(int variable) const;

 private:
  struct Shard {
    std::string name;
    RowRange rows;
    int server = 0;
  };
  struct Variable {
    std::string name;
    std::vector<int64_t> sizes;
    at::ScalarType dtype = at::kFloat;
    uint64_t row_bytes = 0;
    std::optional<RowGrowth> growth;  // of each shard
    std::vector<Shard> shards;
  };
  /// A shard's rows among those wanted of a variable.
  struct Piece {
    size_t shard = 0;
    int64_t begin = 0;  // position of its first row among those wanted
    int64_t size = 0;
    at::Tensor rows;  // row numbers within the shard; undefined: all
  };

  struct Call {
    size_t server = 0;
    RpcMessage request;
  };
  /// One message to a server.
  struct Pushed {
    size_t server = 0;
    std::vector<PushShards::Part> parts;
  };
  /// Handles the answer to call number `call`.
  using OnReply = std::function<void(size_t call, const RpcMessage& reply)>;

  const Variable& variable(int number) const;
  CreateSummary create_shards(const Variable& created, const std::function<CreateShard(const Shard&)>& ask);
  std::vector<Piece> pieces_of(const Variable& variable, const at::Tensor& rows) const;
  std::vector<Pushed> messages_of(const std::vector<Gradient>& gradients) const;
  void exchange(const std::vector<Call>& calls, const OnReply& on_reply);
  void ask_again(size_t server, const std::vector<Call>& calls, const std::vector<size_t>& unanswered,
                 const OnReply& on_reply);

  const ParameterClientOptions options_;
  ServerPlacement placement_;
  std::vector<std::unique_ptr<RpcClient>> servers_;
  std::vector<Variable> variables_;
  int64_t num_reconnects_ = 0;
};

}  // namespace lockstep
