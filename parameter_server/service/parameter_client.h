#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/parameter_server/service/parameter_requests.h"
#include "lockstep/parameter_server/variables/partitioner.h"
#include "lockstep/parameter_server/variables/server_placement.h"
#include "lockstep/runtime/rpc/rpc_client.h"

namespace lockstep {

struct ParameterClientOptions {
  std::vector<RpcClientOptions> servers;
  /// Null: no variable is cut.
  std::shared_ptr<const Partitioner> partitioner;
  ServerPlacementPolicy placement = ServerPlacementPolicy::kRoundRobin;
};

/// Variables that live on parameter servers, cut into shards, as one process sees them. All processes add the
/// same variables in the same order, and so find each shard on the same server. Each exchange sends one
/// message to each server that it concerns, or one for every two megabytes, which the servers work on at the
/// same time, and while the next ones and the answers are on their way.
///
/// A server that is lost is connected to again, and asked again: pulling changes nothing, and a push is
/// applied at most once. For one thread at a time.
class ParameterClient {
 public:
  /// Blocks until all servers have been reached. Throws as RpcClient.
  explicit ParameterClient(const ParameterClientOptions& options);

  /// What create() came upon.
  struct CreateSummary {
    int64_t num_new = 0;            ///< shards that begin with the values that were given
    int64_t num_restored = 0;       ///< shards that go on from what was saved
    std::set<std::string> sources;  ///< where that is from, see ShardStorage::source()
  };

  /// The number of the new variable. Talks to nobody. Throws InvalidArgument for a name that is taken.
  int add_variable(const std::string& name, std::vector<int64_t> sizes, at::ScalarType dtype = at::kFloat);

  /// Puts the variable onto the servers, with these values, where it is not there yet and was not saved;
  /// `values` are not used for shards that are. Blocks. Throws InvalidArgument for values of another shape or
  /// dtype, and what the servers throw.
  CreateSummary create(int variable, const at::Tensor& values, const UpdateRule& rule);
  /// The same for values that the servers make, of a table whose rows are trained as the filter says. Throws
  /// InvalidArgument for a scalar too.
  CreateSummary create(int variable, const InitialValues& values, const UpdateRule& rule,
                       const RowFilter& filter = {});

  /// Saves all shards: each server in the folder of this name, which is in the folder that it was given, and
  /// the asker has made. What each server answered, see ShardStorage::save(). Blocks until all have, which
  /// the servers' call_timeout is to leave time for.
  std::vector<std::string> save(const std::string& folder);

  struct Wanted {
    int variable = 0;
    /// Indices of the first axis, an int64 vector in strictly ascending order; undefined: all rows.
    at::Tensor rows;
    bool pinned = false;  ///< whether its values go into pinned memory, see pinned_for()
  };
  struct Pulled {
    at::Tensor values;               ///< of all rows, or of those wanted, in their order
    std::vector<uint64_t> versions;  ///< by shard; 0 for one that no row was wanted of
  };
  /// Blocks. Throws InvalidArgument for other rows than that, naming the variable; PeerLost naming a server
  /// that cannot be reached any more; and what the servers throw. The servers' answers are all read then, but
  /// for lost ones, so that the client can be used on.
  std::vector<Pulled> pull(const std::vector<Wanted>& wanted);

  struct Gradient {
    int variable = 0;
    at::Tensor rows;                 ///< as Wanted's
    at::Tensor values;               ///< as Pulled's
    std::vector<uint64_t> versions;  ///< as Pulled's: of the values that it was computed with
    double lr = 0;
  };
  struct PushSummary {
    std::vector<uint64_t> staleness;  ///< of each shard's step that was made, in no certain order
    int64_t num_repeated = 0;         ///< shards that had made this push's step before
    int64_t num_outdated = 0;         ///< see PushOutcome::kOutdated; shards
  };
  /// Steps all variables that have a gradient by it, unless that push was applied before. Blocks. Throws as
  /// pull(); some shards may have been stepped then, and are not again by the same push.
  PushSummary push(const PushId& id, const std::vector<Gradient>& gradients);

  /// Gives a slot's gradients to a step that several make together, and does not step. Blocks. Throws as
  /// push(); the same call may be made again, by whomever, and takes the place of the first.
  void contribute(uint64_t step, uint32_t slot, const std::vector<Gradient>& gradients);
  /// Makes the step with the sum of slots 0 to `num_slots` - 1, in their order. Returns the slots whose
  /// gradients some server does not have; others may have made the step then, and it is to be committed again
  /// once these slots have contributed. For one process of the job. Blocks. Throws as push().
  std::vector<uint32_t> commit(uint64_t step, uint32_t num_slots);

  /// See AppliedPushes::forget_before(); on all servers. Blocks.
  void forget_before(uint64_t closure);
  /// Has all servers end that are there. Blocks until they know. The client is of no more use.
  void end_servers();

  int num_servers() const { return static_cast<int>(servers_.size()); }
  /// How often a lost server was connected to again.
  int64_t num_reconnects() const { return num_reconnects_; }
  /// The servers of a variable's shards.
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
    std::vector<Shard> shards;
  };
  /// A shard's rows among those wanted of a variable.
  struct Piece {
    size_t shard = 0;
    int64_t begin = 0;  // where its rows begin among those wanted
    int64_t size = 0;
    at::Tensor rows;  // the shard's own numbers of them; undefined: all
  };

  struct Call {
    size_t server = 0;
    RpcMessage request;
  };
  /// What goes to a server in one message.
  struct Pushed {
    size_t server = 0;
    std::vector<PushShards::Part> parts;
  };
  /// What is done with the answer to call number `call`.
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
