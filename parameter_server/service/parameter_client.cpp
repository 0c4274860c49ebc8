#include "lockstep/parameter_server/service/parameter_client.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "lockstep/parameter_server/shards/row_numbers.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

const std::vector<RpcClientOptions>& checked(const std::vector<RpcClientOptions>& servers) {
  if (servers.empty()) throw InvalidArgument("[ParameterClient] expected at least one server, but got none");
  return servers;
}

int64_t length_of(const std::vector<int64_t>& sizes) {
  return sizes.empty() ? 1 : sizes[0];
}

/// Groups the parts of an exchange into messages. `Where` is a part's position in the exchange.
template <typename Request, typename Where>
class Messages {
 public:
  struct Message {
    size_t server = 0;
    Request request;
    std::vector<Where> positions;  // one for each part
  };

  explicit Messages(size_t num_servers) : open_(num_servers) {}

  /// `bytes` is the traffic that the part causes, there or back.
  void add(size_t server, typename Request::Part part, Where where, uint64_t bytes) {
    // The processor's caches hold a message of this size, and the next one travels while one is handled.
    constexpr uint64_t kEnough = uint64_t{1} << 21;
    auto& open = open_[server];
    if (!open.message) open = {.message = messages_.size(), .bytes = 0};
    if (*open.message == messages_.size()) messages_.push_back({.server = server});
    auto& message = messages_[*open.message];
    message.request.parts.push_back(std::move(part));
    message.positions.push_back(std::move(where));
    open.bytes += bytes;
    if (open.bytes >= kEnough) open.message.reset();
  }
  std::vector<Message>& all() { return messages_; }

 private:
  struct Open {
    std::optional<size_t> message;
    uint64_t bytes = 0;
  };
  std::vector<Message> messages_;
  std::vector<Open> open_;  // by server
};

void check_count(const RpcClient& server, size_t given, size_t expected) {
  if (given != expected)
    throw std::runtime_error(
        c10::str(server.name(), ": expected ", expected, " parts of its answer, but got ", given));
}

}  // namespace

ParameterClient::ParameterClient(const ParameterClientOptions& options)
    : options_(options), placement_(static_cast<int>(checked(options.servers).size()), options.placement) {
  for (const auto& server : options.servers) servers_.push_back(std::make_unique<RpcClient>(server));
}

int ParameterClient::add_variable(const std::string& name, std::vector<int64_t> sizes, at::ScalarType dtype,
                                  const std::optional<RowGrowth>& growth) {
  for (const auto& present : variables_)
    if (present.name == name)
      throw InvalidArgument(c10::str("[ParameterClient] expected a new name, but got '", name, "' again"));
  for (const int64_t size : sizes)
    if (size < 0) throw InvalidArgument(c10::str(name, ": expected sizes of 0 or more, but got ", size));
  const VariableShape shape{.sizes = sizes, .element_bytes = static_cast<int64_t>(c10::elementSize(dtype))};
  const int64_t num_shards = growth                 ? num_servers()
                             : options_.partitioner ? options_.partitioner->num_shards(shape)
                                                    : 1;
  Variable variable{.name = name,
                    .sizes = std::move(sizes),
                    .dtype = dtype,
                    .row_bytes = static_cast<uint64_t>(shape.row_bytes()),
                    .growth = growth};
  if (growth && growth->max_bytes > 0) {
    variable.growth->max_bytes = growth->max_bytes / num_shards;
    if (variable.growth->max_bytes == 0)
      throw InvalidArgument(c10::str(name, ": expected memory for ", num_shards, " servers, but got ",
                                     growth->max_bytes, " bytes"));
  }
  const auto ranges = cut_rows(shape.num_rows(), num_shards);
  for (size_t i = 0; i < ranges.size(); ++i) {
    const int placed =
        placement_.place(growth ? variable.growth->max_bytes : ranges[i].size() * shape.row_bytes());
    // A table that grows has one shard on each server, whatever others hold.
    const int server = growth ? static_cast<int>(i) : placed;
    variable.shards.push_back({shard_name(name, static_cast<int64_t>(i), num_shards), ranges[i], server});
  }
  variables_.push_back(std::move(variable));
  return static_cast<int>(variables_.size()) - 1;
}

const ParameterClient::Variable& ParameterClient::variable(int number) const {
  if (number < 0 || static_cast<size_t>(number) >= variables_.size())
    throw InvalidArgument(c10::str("[ParameterClient] expected one of ", variables_.size(),
                                   " variables, but got number ", number));
  return variables_[static_cast<size_t>(number)];
}

std::vector<int> ParameterClient::servers_of(int number) const {
  std::vector<int> servers;
  for (const auto& shard : variable(number).shards) servers.push_back(shard.server);
  return servers;
}

ParameterClient::CreateSummary ParameterClient::create_shards(
    const Variable& created, const std::function<CreateShard(const Shard&)>& ask) {
  CreateSummary summary;
  // One after another, so that only one shard's copy of sent values exists at a time.
  for (const auto& shard : created.shards) {
    exchange({{static_cast<size_t>(shard.server), encode_request(ask(shard))}},
             [&](size_t, const RpcMessage& reply) {
               const auto [origin, source] = decode_created(reply);
               summary.num_new += origin == ShardOrigin::kNew ? 1 : 0;
               summary.num_restored += origin == ShardOrigin::kRestored ? 1 : 0;
               if (origin == ShardOrigin::kRestored) summary.sources.insert(source);
             });
  }
  return summary;
}

ParameterClient::CreateSummary ParameterClient::create(int number, const at::Tensor& values,
                                                       const UpdateRule& rule) {
  const auto& created = variable(number);
  if (!values.defined() || values.sizes() != at::IntArrayRef(created.sizes) ||
      values.scalar_type() != created.dtype)
    throw InvalidArgument(
        c10::str(created.name, ": expected values of ", created.dtype, " of shape ",
                 at::IntArrayRef(created.sizes), ", but got ",
                 values.defined() ? c10::str(values.scalar_type(), " of shape ", values.sizes()) : "none"));
  const bool is_whole = created.shards.size() == 1;
  return create_shards(created, [&](const Shard& shard) {
    const auto own = is_whole ? values : values.narrow(0, shard.rows.begin, shard.rows.size());
    return CreateShard{.shard = shard.name,
                       .variable = created.name,
                       .rows = shard.rows,
                       .values = own,
                       .initial = std::nullopt,
                       .rule = rule};
  });
}

ParameterClient::CreateSummary ParameterClient::create(int number, const InitialValues& values,
                                                       const UpdateRule& rule, const RowFilter& filter) {
  const auto& created = variable(number);
  if (created.sizes.empty())
    throw InvalidArgument(
        c10::str(created.name, ": expected rows, which servers can make, but got a scalar"));
  auto sizes = created.sizes;
  sizes[0] = 0;
  const auto no_rows = at::empty(sizes, created.dtype);
  return create_shards(created, [&](const Shard& shard) {
    return CreateShard{.shard = shard.name,
                       .variable = created.name,
                       .rows = shard.rows,
                       .values = no_rows,
                       .initial = values,
                       .rule = rule,
                       .filter = filter,
                       .growth = created.growth};
  });
}

std::vector<ParameterClient::Piece> ParameterClient::pieces_of(const Variable& variable,
                                                               const at::Tensor& rows) const {
  std::vector<Piece> pieces;
  if (!rows.defined()) {
    for (size_t i = 0; i < variable.shards.size(); ++i)
      pieces.push_back(
          {.shard = i, .begin = variable.shards[i].rows.begin, .size = variable.shards[i].rows.size()});
    return pieces;
  }
  const auto indices = ascending_row_numbers(rows, length_of(variable.sizes), variable.name + ": ");
  auto next = indices.begin();
  for (size_t i = 0; i < variable.shards.size(); ++i) {
    const auto& range = variable.shards[i].rows;
    const auto end = std::lower_bound(next, indices.end(), range.end);
    if (end == next) continue;
    const int64_t begin = next - indices.begin();
    const int64_t size = end - next;
    const auto own = rows.narrow(0, begin, size);
    pieces.push_back(
        {.shard = i, .begin = begin, .size = size, .rows = range.begin == 0 ? own : own - range.begin});
    next = end;
  }
  return pieces;
}

std::vector<ParameterClient::Pulled> ParameterClient::pull(const std::vector<Wanted>& wanted) {
  struct Position {
    size_t wanted = 0;
    Piece piece;
  };
  Messages<PullShards, Position> messages(servers_.size());
  std::vector<Pulled> pulled(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& asked = variable(wanted[i].variable);
    pulled[i].versions.resize(asked.shards.size(), kNotRead);
    for (auto& piece : pieces_of(asked, wanted[i].rows)) {
      const auto& shard = asked.shards[piece.shard];
      PullShards::Part part{.shard = shard.name, .rows = piece.rows};
      const uint64_t bytes = static_cast<uint64_t>(piece.size) * asked.row_bytes;
      messages.add(static_cast<size_t>(shard.server), std::move(part), {i, std::move(piece)}, bytes);
    }
  }
  std::vector<Call> calls;
  for (auto& message : messages.all())
    calls.push_back({message.server, encode_request(std::move(message.request))});

  exchange(calls, [&](size_t call, const RpcMessage& reply) {
    const auto& message = messages.all()[call];
    const auto parts = decode_pulled(reply);
    check_count(*servers_[message.server], parts.size(), message.positions.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto& [which, piece] = message.positions[i];
      auto& into = pulled[which];
      const auto& whole = variable(wanted[which].variable);
      into.versions[piece.shard] = parts[i].version;
      const int64_t num_wanted =
          wanted[which].rows.defined() ? wanted[which].rows.numel() : length_of(whole.sizes);
      if (piece.size == num_wanted && !wanted[which].pinned) {  // all from one shard: no copy needed
        into.values = parts[i].values;
        continue;
      }
      if (!into.values.defined()) {
        auto sizes = whole.sizes;
        if (!sizes.empty()) sizes[0] = num_wanted;
        into.values =
            at::empty(sizes, at::device(at::kCPU).dtype(whole.dtype).pinned_memory(wanted[which].pinned));
      }
      (piece.size == num_wanted ? into.values : into.values.narrow(0, piece.begin, piece.size))
          .copy_(parts[i].values);
    }
  });
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (pulled[i].values.defined()) continue;  // else no row was wanted
    const auto& whole = variable(wanted[i].variable);
    auto sizes = whole.sizes.empty() ? std::vector<int64_t>{0} : whole.sizes;
    sizes[0] = 0;
    pulled[i].values = at::empty(sizes, whole.dtype);
  }
  return pulled;
}

void ParameterClient::keep_older(std::vector<uint64_t>& versions, const std::vector<uint64_t>& read) {
  versions.resize(read.size(), kNotRead);
  for (size_t i = 0; i < read.size(); ++i) versions[i] = std::min(versions[i], read[i]);
}

std::vector<ParameterClient::Pushed> ParameterClient::messages_of(
    const std::vector<Gradient>& gradients) const {
  struct Nowhere {};  // every reply is of the same kind, so no place is needed
  Messages<PushShards, Nowhere> messages(servers_.size());
  for (const auto& gradient : gradients) {
    const auto& stepped = variable(gradient.variable);
    if (gradient.versions.size() != stepped.shards.size())
      throw InvalidArgument(c10::str(stepped.name, ": expected ", stepped.shards.size(),
                                     " versions, but got ", gradient.versions.size()));
    const int64_t num_rows = gradient.rows.defined() ? gradient.rows.numel() : length_of(stepped.sizes);
    auto sizes = stepped.sizes.empty() && gradient.rows.defined() ? std::vector<int64_t>{1} : stepped.sizes;
    if (!sizes.empty()) sizes[0] = num_rows;
    if (!gradient.values.defined() || gradient.values.sizes() != at::IntArrayRef(sizes))
      throw InvalidArgument(c10::str(stepped.name, ": expected a gradient of shape ", at::IntArrayRef(sizes),
                                     ", but got ",
                                     gradient.values.defined() ? c10::str(gradient.values.sizes()) : "none"));
    for (auto& piece : pieces_of(stepped, gradient.rows)) {
      const auto& shard = stepped.shards[piece.shard];
      const bool is_whole = piece.size == num_rows;
      messages.add(
          static_cast<size_t>(shard.server),
          {.shard = shard.name,
           .rows = std::move(piece.rows),
           .gradient = is_whole ? gradient.values : gradient.values.narrow(0, piece.begin, piece.size),
           .lr = gradient.lr,
           .version = gradient.versions[piece.shard]},
          {}, static_cast<uint64_t>(piece.size) * stepped.row_bytes);
    }
  }
  std::vector<Pushed> pushed;
  for (auto& message : messages.all()) pushed.push_back({message.server, std::move(message.request.parts)});
  return pushed;
}

ParameterClient::PushSummary ParameterClient::push(const PushId& id, const std::vector<Gradient>& gradients) {
  std::vector<Call> calls;
  std::vector<size_t> num_parts;
  for (auto& [server, parts] : messages_of(gradients)) {
    num_parts.push_back(parts.size());
    calls.push_back({server, encode_request(PushShards{id, std::move(parts)})});
  }
  PushSummary summary;
  exchange(calls, [&](size_t call, const RpcMessage& reply) {
    const auto results = decode_pushed(reply);
    check_count(*servers_[calls[call].server], results.size(), num_parts[call]);
    for (const auto& result : results) {
      if (result.outcome == PushOutcome::kApplied) summary.staleness.push_back(result.staleness);
      summary.num_repeated += result.outcome == PushOutcome::kRepeated ? 1 : 0;
      summary.num_outdated += result.outcome == PushOutcome::kOutdated ? 1 : 0;
    }
  });
  return summary;
}

void ParameterClient::contribute(uint64_t step, uint32_t slot, const std::vector<Gradient>& gradients) {
  auto pushed = messages_of(gradients);
  // Tells each server which message is its last; a server without any gets an empty one.
  std::vector<std::optional<size_t>> last(servers_.size());
  for (size_t i = 0; i < pushed.size(); ++i) last[pushed[i].server] = i;
  for (size_t server = 0; server < servers_.size(); ++server) {
    if (last[server]) continue;
    last[server] = pushed.size();
    pushed.push_back({server, {}});
  }
  std::vector<Call> calls;
  for (size_t i = 0; i < pushed.size(); ++i) {
    auto& [server, parts] = pushed[i];
    calls.push_back(
        {server, encode_request(ContributeShards{step, slot, i == *last[server], std::move(parts)})});
  }
  exchange(calls, [](size_t, const RpcMessage&) {});
}

std::vector<uint32_t> ParameterClient::commit(uint64_t step, uint32_t num_slots) {
  std::vector<Call> calls;
  for (size_t server = 0; server < servers_.size(); ++server)
    calls.push_back({server, encode_request(CommitStep{step, num_slots})});
  std::set<uint32_t> missing;
  exchange(calls, [&](size_t, const RpcMessage& reply) {
    for (const auto slot : decode_committed(reply)) missing.insert(slot);
  });
  return {missing.begin(), missing.end()};
}

void ParameterClient::forget_before(uint64_t closure) {
  std::vector<Call> calls;
  for (size_t server = 0; server < servers_.size(); ++server)
    calls.push_back({server, encode_request(ForgetPushes{closure})});
  exchange(calls, [](size_t, const RpcMessage&) {});
}

void ParameterClient::end_servers() {
  for (const auto& server : servers_) {
    try {
      server->call(encode_request(EndServing{}));
    } catch (const PeerLost&) {
      if (!server->is_lost()) throw;  // otherwise it has already ended
    }
  }
}

std::vector<std::string> ParameterClient::save(const std::string& folder) {
  std::vector<Call> calls;
  for (size_t server = 0; server < servers_.size(); ++server)
    calls.push_back({server, encode_request(SaveShards{folder})});
  std::vector<std::string> answers(servers_.size());
  exchange(calls, [&](size_t call, const RpcMessage& reply) { answers[call] = decode_saved(reply); });
  return answers;
}

void ParameterClient::exchange(const std::vector<Call>& calls, const OnReply& on_reply) {
  std::vector<bool> is_sent(calls.size());
  std::vector<std::vector<size_t>> unanswered(servers_.size());  // calls without a reply, by lost server
  std::vector<bool> is_lost(servers_.size());
  std::exception_ptr error;
  // If a call fails, the others still run, so that no reply is left to be mistaken for a later call's.
  const auto attempt = [&](size_t call, const std::function<void()>& work) {
    const size_t server = calls[call].server;
    try {
      if (!is_lost[server]) return work();
    } catch (const PeerLost&) {
      is_lost[server] = servers_[server]->is_lost();
      if (!is_lost[server]) {  // the server's own error
        if (!error) error = std::current_exception();
        return;
      }
    } catch (...) {
      if (!error) error = std::current_exception();
      return;
    }
    unanswered[server].push_back(call);
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    attempt(i, [&] {
      servers_[calls[i].server]->send(calls[i].request);
      is_sent[i] = true;
    });
  }
  for (size_t i = 0; i < calls.size(); ++i)
    if (is_sent[i]) attempt(i, [&] { on_reply(i, servers_[calls[i].server]->receive()); });
  if (error) std::rethrow_exception(error);
  for (size_t server = 0; server < servers_.size(); ++server)
    if (is_lost[server]) ask_again(server, calls, unanswered[server], on_reply);
}

void ParameterClient::ask_again(size_t server, const std::vector<Call>& calls,
                                const std::vector<size_t>& unanswered, const OnReply& on_reply) {
  // Gives up on a server that comes back and is lost again each time.
  constexpr int kMaxAttempts = 3;
  for (int attempt = 1;; ++attempt) {
    // Blocks until the server is back; throws PeerLost if it does not come back in time.
    servers_[server] = std::make_unique<RpcClient>(options_.servers[server]);
    ++num_reconnects_;
    try {
      for (const size_t call : unanswered) on_reply(call, servers_[server]->call(calls[call].request));
      return;
    } catch (const PeerLost&) {
      if (attempt == kMaxAttempts || !servers_[server]->is_lost()) throw;
    }
  }
}

}  // namespace lockstep
