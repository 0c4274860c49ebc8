// How the workers of a job meet.
#include <c10/util/StringUtil.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <system_error>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/deadline.h"
#include "lockstep/runtime/base/net/descriptor_limit.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/runtime/devices/error_text.h"
#include "lockstep/runtime/workers/agent_store.h"
#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/runtime/workers/worker_info.h"
#include "lockstep/runtime/workers/worker_rendezvous.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

// How long worker 0 keeps its store after a meeting that has failed, so that the others read why.
constexpr milliseconds kLastWord{2000};

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

std::string address_of(const JoinOptions& options) {
  return c10::str(options.master_host, ":", options.master_port);
}

std::string own_address(const JoinOptions& options) {
  return options.address.empty() ? address_towards(options.master_host, options.master_port)
                                 : options.address;
}

double seconds(milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// Throws ClusterError if worker 0 cannot listen at its address.
TcpListener listen_as_coordinator(const JoinOptions& options) {
  if (options.listening_socket) return TcpListener::adopt(*options.listening_socket, options.master_port);
  try {
    return {options.master_host, options.master_port};
  } catch (const ClusterError& error) {
    throw ClusterError(
        std::string(error.what()) +
        "; worker 0 listens there: it must be an address of this machine, and no other process "
        "may be worker 0 or use the port");
  }
}

/// The same on all workers, since all have the same information. If two machines have one name, exchanges
/// between them are right, but perhaps not the fastest.
bool are_on_one_machine(const std::vector<WorkerInfo>& workers) {
  return std::all_of(workers.begin(), workers.end(), [&](const WorkerInfo& worker) {
    return worker.host == workers.front().host && !worker.exchange_name.empty();
  });
}

}  // namespace

std::shared_ptr<WorkerGroup> WorkerGroup::join(const JoinOptions& options) {
  raise_descriptor_limit();
  std::shared_ptr<WorkerGroup> group(new WorkerGroup(options));
  group->between_runs_ = group->open_channel("between runs");
  if (options.size > 1) group->stalls_ = group->watch_stalls(options);
  return group;
}

WorkerGroup::WorkerGroup(const JoinOptions& options)
    : rank_(options.rank),
      size_(options.size),
      join_timeout_(options.join_timeout),
      timeout_(options.timeout),
      transport_(options.transport),
      restart_count_(options.restart_count),
      token_(JobToken::from_text(options.token)) {
  join_store(options);
  address_ = own_address(options);
  try {
    if (options.transport == WorkerTransport::kExchange && size_ > 1) {
      hub_ = std::make_shared<LinkHub>(
          LinkHub::Options{.rank = rank_,
                           .token = token_,
                           .generation = static_cast<uint64_t>(restart_count_),
                           .host = address_,
                           .uses_shared_memory = options.uses_shared_memory,
                           .encrypts = options.encrypts,
                           .log = [](const std::string& message) { TORCH_WARN(message); }});
    }
    connections_ = std::make_shared<Connections>(hub_);
    heartbeat_ = std::make_shared<Heartbeat>(
        HeartbeatOptions{.rank = rank_,
                         .world_size = size_,
                         .token = token_,
                         .incarnation = static_cast<uint64_t>(options.restart_count),
                         .bind_address = address_,
                         .are_ports_held = true},
        [this](const LostPeer& peer) { on_lost(peer); });
    meet(options);
    heartbeat_->start(peers_);
  } catch (const ClusterError&) {
    throw;
  } catch (const std::exception& error) {
    throw ClusterError(c10::str("[join] worker ", rank_, ": ", error.what()));
  }
}

void WorkerGroup::join_store(const JoinOptions& options) {
  const auto no_coordinator = [&](const std::string& why) {
    return ClusterError(c10::str("[join] worker ", rank_, " found no coordinator at ", address_of(options),
                                 " within ", seconds(join_timeout_), " s: ", why));
  };
  try {
    connect_store(options);
  } catch (const HandshakeError& error) {
    if (error.reason() != HandshakeError::Reason::kToken) throw no_coordinator(error.what());
    throw ClusterError(c10::str("[join] worker ", rank_, " came to ", address_of(options),
                                " with another job token than worker 0: all processes of a job need the same "
                                "LOCKSTEP_JOB_TOKEN, or, without a token, the same user, LOCKSTEP_JOB_ID and "
                                "XDG_RUNTIME_DIR; if one of them uses MUNGE or certificates, all must"));
  } catch (const ClusterError&) {
    throw;
  } catch (const std::system_error& error) {
    // Something else listens there, or nothing answers at all.
    throw no_coordinator(error.code() == std::errc::timed_out ? "it does not answer"
                                                              : error.code().message());
  } catch (const std::exception&) {
    throw no_coordinator(error_line(std::current_exception()));
  }
}

void WorkerGroup::connect_store(const JoinOptions& options) {
  const auto deadline = deadline_after(join_timeout_);
  const auto time_left = [&] {
    return std::max(std::chrono::ceil<milliseconds>(deadline - Clock::now()), milliseconds(0));
  };
  const auto generation = static_cast<uint64_t>(restart_count_);
  const AgentStoreOptions agent{.host = options.master_host,
                                .port = options.master_port,
                                .timeout = join_timeout_,
                                .token = token_,
                                .restart_count = restart_count_};
  StoreAddress address{options.master_host, options.master_port};
  if (rank_ == 0) {
    if (options.is_master_served) address.host = own_address(options);
    server_ = std::make_unique<StoreServer>(
        options.is_master_served ? TcpListener(address.host, 0) : listen_as_coordinator(options),
        StoreServerOptions{.token = token_, .generation = generation, .grant = options.grant});
    address.port = server_->port();
    if (options.is_master_served) tell_agent(agent, address);
  } else if (options.is_master_served) {
    address = ask_agent(agent);
  }
  store_ = std::make_shared<StoreClient>(StoreClientOptions{.host = address.host,
                                                            .port = address.port,
                                                            .token = token_,
                                                            .name = c10::str("worker ", rank_),
                                                            .generation = generation,
                                                            .connect_timeout = time_left()});
}

/// A worker that came with another token may be the one that is missing.
std::string WorkerGroup::hint_about_strangers() const {
  const uint64_t count = server_ ? server_->num_wrong_tokens() : 0;
  if (count == 0) return "";
  return c10::str(" (connections with another job token that were refused: ", count, ")");
}

void WorkerGroup::meet(const JoinOptions& options) {
  WorkerInfo own{.host = host_name(),
                 .address = address_,
                 .heartbeat_port = heartbeat_->port(),
                 .heartbeat_session = heartbeat_->session(),
                 .num_replicas = options.num_replicas,
                 .facts = options.facts};
  if (hub_) {
    own.exchange_port = hub_->address().port;
    own.exchange_name = hub_->address().local_name;
  }
  own.facts.insert(own.facts.begin(), {"world size", std::to_string(size_)});
  std::vector<WorkerInfo> infos;
  try {
    infos = meet_workers(*store_, own,
                         {.rank = rank_,
                          .size = size_,
                          .address = address_of(options),
                          .timeout = join_timeout_,
                          .hint = [this] { return hint_about_strangers(); }});
  } catch (const ClusterError&) {
    if (server_) server_->wait_for_departures(kLastWord);
    throw;
  } catch (const std::system_error& error) {
    const bool is_silent = error.code() == std::errc::timed_out;
    throw ClusterError(c10::str("[join] worker ", rank_, " lost the coordinator at ", address_of(options),
                                ": ", is_silent ? "it has stopped answering" : error.code().message()));
  }
  std::vector<std::string> names;
  std::vector<int> num_replicas;
  std::vector<LinkAddress> links;
  for (int worker = 0; worker < size_; ++worker) {
    const auto& info = infos[static_cast<size_t>(worker)];
    names.push_back(worker_name(worker, info));
    num_replicas.push_back(info.num_replicas);
    links.push_back({info.address, info.exchange_port, info.exchange_name});
    if (worker == rank_) continue;
    peers_.push_back({worker, names.back(), info.address, info.heartbeat_port, info.heartbeat_session});
  }
  if (hub_) hub_->set_peers(std::move(links));
  if (are_on_one_machine(infos))
    exchange_policy_ = {.transport = "shared memory", .costs = kSharedMemoryCosts};
  exchange_policy_.all_reduce_algorithm = options.all_reduce_algorithm;
  CauseSearch search;
  // Failures may outlive the group.
  search.rounds = [heartbeat = std::weak_ptr(heartbeat_)] {
    const auto detector = heartbeat.lock();
    return detector ? detector->rounds() : std::nullopt;
  };
  failures_ = std::make_shared<WorkerFailures>(rank_, std::move(names), store_, std::move(search));
  layout_ = std::make_shared<const WorkerLayout>(rank_, std::move(num_replicas));
}

}  // namespace lockstep
