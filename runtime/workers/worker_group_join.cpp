// How the workers of a job meet.
#include <c10/util/StringUtil.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <optional>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/call_with_timeout.h"
#include "lockstep/runtime/base/internal/signal_guard.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/runtime/devices/error_text.h"
#include "lockstep/runtime/workers/coordinator_store.h"
#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/runtime/workers/worker_info.h"
#include "lockstep/runtime/workers/worker_rendezvous.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

// How long beyond the join timeout to wait for a coordinator that does not answer. One that does has reported
// its error by then.
constexpr milliseconds kConnectSlack{1000};
constexpr milliseconds kMeetSlack{3000};

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

std::string address_of(const JoinOptions& options) {
  return c10::str(options.master_host, ":", options.master_port);
}

double seconds(milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// Only those who know the token can write this prefix; it does not reveal the token.
std::string prefix_of(const JoinOptions& options) {
  std::string prefix = c10::str("lockstep/", options.restart_count, "/");
  const auto tag = JobToken::from_text(options.token)
                       .tag(std::span(reinterpret_cast<const uint8_t*>(prefix.data()), prefix.size()));
  constexpr const char* kDigits = "0123456789abcdef";
  for (const uint8_t byte : tag) prefix += {kDigits[byte >> 4], kDigits[byte & 15]};
  return prefix;
}

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
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

JobToken token_of(const JoinOptions& options) {
  return JobToken::from_text(options.token);
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
      prefix_(prefix_of(options)) {
  open_store(options);
  address_ =
      options.address.empty() ? address_towards(options.master_host, options.master_port) : options.address;
  try {
    if (options.transport == WorkerTransport::kExchange && size_ > 1) {
      hub_ = std::make_shared<LinkHub>(
          LinkHub::Options{.rank = rank_,
                           .token = token_of(options),
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
                         .token = token_of(options),
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

void WorkerGroup::open_store(const JoinOptions& options) {
  c10d::TCPStoreOptions store;
  store.port = static_cast<uint16_t>(options.master_port);
  store.waitWorkers = false;
  store.timeout = join_timeout_;
  store.isServer = rank_ == 0 && !options.is_master_served;
  if (store.isServer) {
    // Our own socket: TCPStore's would listen on every address of the machine.
    store.masterListenFd = listen_as_coordinator(options).release();
  }
  const auto no_coordinator = [&](const std::string& why) {
    return ClusterError(c10::str("[join] worker ", rank_, " found no coordinator at ", address_of(options),
                                 " within ", seconds(join_timeout_), " s: ", why));
  };
  std::optional<c10::intrusive_ptr<c10d::Store>> opened;
  try {
    opened = call_with_timeout(join_timeout_ + kConnectSlack, [host = options.master_host, store] {
      const SignalGuard without_broken_pipes(SIGPIPE);
      return connect_to_coordinator(host, store);
    });
  } catch (const std::exception&) {
    throw no_coordinator(error_line(std::current_exception()));
  }
  // Something else listens there, or nothing answers at all.
  if (!opened) throw no_coordinator("it does not answer");
  server_ = std::move(*opened);
  store_ = c10::make_intrusive<c10d::PrefixStore>(prefix_, server_);
  // Others whose token differs look for worker 0 in vain. The prefix does not reveal the token.
  if (rank_ == 0) server_->set(token_key(), bytes_of(prefix_));
}

void WorkerGroup::meet(const JoinOptions& options) {
  WorkerInfo own{.host = host_name(),
                 .address = address_,
                 .heartbeat_port = heartbeat_->port(),
                 .num_replicas = options.num_replicas,
                 .facts = options.facts};
  if (hub_) {
    own.exchange_port = hub_->address().port;
    own.exchange_name = hub_->address().local_name;
  }
  own.facts.insert(own.facts.begin(), {"world size", std::to_string(size_)});
  struct Met {
    std::vector<WorkerInfo> infos;
    // Separate clients, since a client that waits for an answer keeps others waiting.
    c10::intrusive_ptr<c10d::Store> failures;
    c10::intrusive_ptr<c10d::Store> stalls;
    c10::intrusive_ptr<c10d::Store> connecting;
  };
  std::optional<Met> met;
  try {
    met = call_with_timeout(
        join_timeout_ + kMeetSlack,
        [store = store_, own,
         meeting = WorkerRendezvousOptions{
             .rank = rank_,
             .size = size_,
             .address = address_of(options),
             .timeout = join_timeout_,
             .has_other_token = [server = server_, key = token_key(), own_prefix = bytes_of(prefix_)] {
               return server->check({key}) && server->get(key) != own_prefix;
             }}] {
          auto infos = meet_workers(*store, own, meeting);
          return Met{std::move(infos), store->clone(), store->clone(), store->clone()};
        });
  } catch (const c10::Error&) {
    throw ClusterError(c10::str("[join] worker ", rank_, " lost the coordinator at ", address_of(options),
                                ": ", error_line(std::current_exception())));
  }
  if (!met) {
    throw ClusterError(c10::str("[join] worker ", rank_, " lost the coordinator at ", address_of(options),
                                ": it has stopped answering"));
  }
  std::vector<std::string> names;
  std::vector<int> num_replicas;
  std::vector<LinkAddress> links;
  for (int worker = 0; worker < size_; ++worker) {
    const auto& info = met->infos[static_cast<size_t>(worker)];
    names.push_back(worker_name(worker, info));
    num_replicas.push_back(info.num_replicas);
    links.push_back({info.address, info.exchange_port, info.exchange_name});
    if (worker != rank_) peers_.push_back({worker, names.back(), info.address, info.heartbeat_port});
  }
  if (hub_) hub_->set_peers(std::move(links));
  if (are_on_one_machine(met->infos))
    exchange_policy_ = {.transport = "shared memory", .costs = kSharedMemoryCosts};
  exchange_policy_.all_reduce_algorithm = options.all_reduce_algorithm;
  CauseSearch search;
  // Failures may outlive the group.
  search.rounds = [heartbeat = std::weak_ptr(heartbeat_)] {
    const auto detector = heartbeat.lock();
    return detector ? detector->rounds() : std::nullopt;
  };
  failures_ =
      std::make_shared<WorkerFailures>(rank_, std::move(names), std::move(met->failures), std::move(search));
  stalls_store_ = std::move(met->stalls);
  connecting_store_ = std::move(met->connecting);
  layout_ = std::make_shared<const WorkerLayout>(rank_, std::move(num_replicas));
}

}  // namespace lockstep
