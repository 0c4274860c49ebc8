// How the workers of a job come together.
#include <c10/util/StringUtil.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <array>
#include <exception>
#include <thread>

#include "lockstep/runtime/error_text.h"
#include "lockstep/runtime/errors.h"
#include "lockstep/runtime/tcp_listener.h"
#include "lockstep/runtime/without_signal.h"
#include "lockstep/runtime/worker_card.h"
#include "lockstep/runtime/worker_group.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMeetPoll{10};

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

std::string place_of(const JoinOptions& options) {
  return c10::str(options.master_host, ":", options.master_port);
}

double seconds(milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// Those who know no token cannot write this; it does not tell the token.
std::string prefix_of(const JoinOptions& options) {
  std::string prefix = c10::str("lockstep/", options.restart_count, "/");
  if (options.token.empty()) return prefix;
  const auto tag = JobToken::from_text(options.token)
                       .tag(std::span(reinterpret_cast<const uint8_t*>(prefix.data()), prefix.size()));
  constexpr const char* kDigits = "0123456789abcdef";
  for (const uint8_t byte : tag) prefix += {kDigits[byte >> 4], kDigits[byte & 15]};
  return prefix;
}

JobToken heartbeat_token(const JoinOptions& options) {
  return JobToken::from_text(options.token.empty() ? "no token" : options.token);
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
      prefix_(prefix_of(options)) {
  open_store(options);
  address_ =
      options.address.empty() ? address_towards(options.master_host, options.master_port) : options.address;
  try {
    heartbeat_ = std::make_shared<Heartbeat>(
        HeartbeatOptions{.rank = rank_,
                         .world_size = size_,
                         .token = heartbeat_token(options),
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
    // A socket of our own: TCPStore's would listen on every address of the machine.
    auto listener = options.listening_socket
                        ? TcpListener::adopt(*options.listening_socket, options.master_port)
                        : TcpListener(options.master_host, options.master_port);
    store.masterListenFd = listener.release();
  }
  const WithoutSignal without_broken_pipes(SIGPIPE);
  try {
    server_ = c10::make_intrusive<c10d::TCPStore>(options.master_host, store);
    store_ = c10::make_intrusive<c10d::PrefixStore>(prefix_, server_);
  } catch (const std::exception&) {
    throw ClusterError(c10::str("[join] worker ", rank_, " found no coordinator at ", place_of(options),
                                " within ", seconds(join_timeout_),
                                " s: ", error_line(std::current_exception())));
  }
}

/// Every worker shows its card, and looks at all others'.
void WorkerGroup::meet(const JoinOptions& options) {
  WorkerCard own{.host = host_name(),
                 .address = address_,
                 .heartbeat_port = heartbeat_->port(),
                 .num_replicas = options.num_replicas,
                 .facts = options.facts};
  own.facts.insert(own.facts.begin(), {"world size", std::to_string(size_)});
  const auto key_of = [](int worker) { return c10::str("worker/", worker); };
  const auto deadline = Clock::now() + join_timeout_;
  std::vector<WorkerCard> cards;
  std::vector<std::string> names;
  std::vector<int> num_replicas;
  try {
    if (store_->add(key_of(rank_) + "/claims", 1) > 1) {
      throw ClusterError(c10::str("[join] another process has come to ", place_of(options), " as worker ",
                                  rank_, " already: each needs a task index, or rank, of its own"));
    }
    const std::string shown = own.text();
    store_->set(key_of(rank_), shown);
    store_->add("present", 1);
    for (int worker = 0; worker < size_; ++worker) {
      while (!store_->check({key_of(worker)})) {
        if (Clock::now() >= deadline) {
          throw ClusterError(c10::str("[join] worker ", worker, " of ", size_, " did not come to ",
                                      place_of(options), " within ", seconds(join_timeout_),
                                      " s: is it running, with the same cluster and job token?"));
        }
        std::this_thread::sleep_for(kMeetPoll);
      }
      const auto bytes = store_->get(key_of(worker));
      cards.push_back(WorkerCard::parse({bytes.begin(), bytes.end()}));
      const auto& card = cards.back();
      names.push_back(c10::str("worker ", worker, " (", card.host, ")"));
      num_replicas.push_back(card.num_replicas);
      if (worker != rank_) peers_.push_back({worker, names.back(), card.address, card.heartbeat_port});
      // This one's card is compared with worker 0's before those are waited for that may never come.
      refuse_difference(own, c10::str("worker ", rank_, " (", own.host, ")"), cards[0]);
      refuse_difference(card, names.back(), cards[0]);
    }
    // A client of its own, since one that waits for an answer keeps others waiting.
    failures_ = std::make_shared<WorkerFailures>(rank_, std::move(names), store_->clone());
    stalls_store_ = store_->clone();
  } catch (const c10::Error&) {
    throw ClusterError(c10::str("[join] worker ", rank_, " lost the coordinator at ", place_of(options), ": ",
                                error_line(std::current_exception())));
  }
  layout_ = std::make_shared<const WorkerLayout>(rank_, std::move(num_replicas));
}

void WorkerGroup::refuse_difference(const WorkerCard& card, const std::string& name,
                                    const WorkerCard& first) {
  const auto difference = card.difference(first);
  if (!difference) return;
  const auto shown = [](const std::string& value) { return value.empty() ? "none" : "'" + value + "'"; };
  // The others have to read worker 0's card, which goes with its store.
  constexpr int kMostPolls = 200;
  store_->add("refused", 1);
  for (int poll = 0; rank_ == 0 && poll < kMostPolls && store_->add("refused", 0) < store_->add("present", 0);
       ++poll)
    std::this_thread::sleep_for(kMeetPoll);
  throw ClusterError(c10::str("[join] expected the same ", difference->fact, " on all workers, but ",
                              "worker 0 (", first.host, ") has ", shown(difference->there), " and ", name,
                              " has ", shown(difference->here)));
}

}  // namespace lockstep
