#include "lockstep/runtime/worker_group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>
#include <system_error>
#include <thread>

#include "lockstep/runtime/byte_places.h"
#include "lockstep/runtime/error_text.h"
#include "lockstep/runtime/errors.h"
#include "lockstep/runtime/gloo_backend.h"
#include "lockstep/runtime/local_sum.h"
#include "lockstep/runtime/tcp_listener.h"
#include "lockstep/runtime/worker_card.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

// How long the cause of a broken connection is looked for: a killed process is known for one within this.
constexpr milliseconds kCauseSearch{1000};
constexpr milliseconds kPoll{10};
constexpr const char* kFailures = "failures";

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

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
    heartbeat_ = std::make_unique<Heartbeat>(
        HeartbeatOptions{.rank = rank_,
                         .world_size = size_,
                         .token = heartbeat_token(options),
                         .incarnation = static_cast<uint64_t>(options.restart_count),
                         .bind_address = address_},
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
  try {
    server_ = c10::make_intrusive<c10d::TCPStore>(options.master_host, store);
    store_ = c10::make_intrusive<c10d::PrefixStore>(prefix_, server_);
    MutexLock lock(cause_mutex_);
    causes_ = store_->clone();
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
  std::vector<int> num_replicas;
  try {
    if (store_->add(key_of(rank_) + "/claims", 1) > 1) {
      throw ClusterError(c10::str("[join] another process has come to ", place_of(options), " as worker ",
                                  rank_, " already: each needs a task index, or rank, of its own"));
    }
    store_->set(key_of(rank_), bytes_of(own.text()));
    store_->add("present", 1);
    for (int worker = 0; worker < size_; ++worker) {
      while (!store_->check({key_of(worker)})) {
        if (Clock::now() >= deadline) {
          throw ClusterError(c10::str("[join] worker ", worker, " of ", size_, " did not come to ",
                                      place_of(options), " within ", seconds(join_timeout_),
                                      " s: is it running, with the same cluster and job token?"));
        }
        std::this_thread::sleep_for(kPoll);
      }
      const auto bytes = store_->get(key_of(worker));
      cards.push_back(WorkerCard::parse({bytes.begin(), bytes.end()}));
      const auto& card = cards.back();
      names_.push_back(c10::str("worker ", worker, " (", card.host, ")"));
      num_replicas.push_back(card.num_replicas);
      if (worker != rank_) peers_.push_back({worker, names_.back(), card.address, card.heartbeat_port});
      // This one's card is compared with worker 0's before those are waited for that may never come.
      refuse_difference(own, c10::str("worker ", rank_, " (", own.host, ")"), cards[0]);
      refuse_difference(card, names_.back(), cards[0]);
    }
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
    std::this_thread::sleep_for(kPoll);
  throw ClusterError(c10::str("[join] expected the same ", difference->fact, " on all workers, but ",
                              names_[0], " has ", shown(difference->there), " and ", name, " has ",
                              shown(difference->here)));
}

WorkerGroup::~WorkerGroup() {
  if (between_runs_) {
    if (std::uncaught_exceptions() > 0) {
      report(std::make_exception_ptr(ClusterError("it ended its part early")));
    } else if (!has_failed()) {
      finish_together();
    }
  }
  if (heartbeat_) heartbeat_->stop();
}

/// What is still on its way to a worker would be lost where its sender cuts the connection, and worker 0 has
/// the store.
void WorkerGroup::finish_together() {
  const auto wait_for = [this](const char* key, int64_t count, milliseconds limit) {
    const auto deadline = Clock::now() + limit;
    milliseconds pause{1};
    while (store_->add(key, 0) < count && !has_failed() && Clock::now() < deadline) {
      std::this_thread::sleep_for(pause);
      pause = std::min<milliseconds>(pause * 2, milliseconds(100));
    }
  };
  try {
    store_->add("done", 1);
    wait_for("done", size_, timeout_);
    if (rank_ != 0) {
      store_->add("left", 1);
    } else {
      wait_for("left", size_ - 1, std::chrono::seconds(5));
    }
  } catch (const std::exception&) {  // a store that is gone: nobody is left to wait for
  }
}

bool WorkerGroup::has_failed() {
  MutexLock lock(mutex_);
  return lost_ != nullptr || has_failed_;
}

std::shared_ptr<WorkerChannel> WorkerGroup::open_channel(const std::string& op) {
  const std::string name = c10::str("channel/", num_channels_++);
  c10::intrusive_ptr<c10d::Backend> backend;
  try {
    const auto store = c10::make_intrusive<c10d::PrefixStore>(name, store_);
    backend = make_gloo_backend(store, {rank_, size_, address_, timeout_});
  } catch (const std::exception&) {
    std::rethrow_exception(explain(op, std::current_exception()));
  }
  const auto weak = weak_from_this();
  auto channel = std::make_shared<WorkerChannel>(WorkerChannel::Options{
      op, std::move(backend), [names = names_](int worker) { return names.at(static_cast<size_t>(worker)); },
      [weak, op](const std::exception_ptr& error) {
        const auto group = weak.lock();
        return group ? group->explain(op, error) : error;
      },
      [weak](const std::exception_ptr& error) {
        if (const auto group = weak.lock()) group->report(error);
      },
      [weak](c10::intrusive_ptr<c10d::Backend> used) {
        const auto group = weak.lock();
        if (!group) return;
        MutexLock lock(group->mutex_);
        group->retired_.push_back(std::move(used));
      }});
  std::exception_ptr lost;
  {
    MutexLock lock(mutex_);
    std::erase_if(channels_, [](const auto& known) { return known.expired(); });
    channels_.push_back(channel);
    lost = lost_;
  }
  if (lost) channel->fail(lost);
  return channel;
}

void WorkerGroup::on_lost(const LostPeer& peer) {
  const auto error = std::make_exception_ptr(PeerLost(
      peer.rank == rank_
          ? c10::str(names_[static_cast<size_t>(rank_)], " was given up by the others: ", peer.reason)
          : c10::str(peer.name, " was lost: ", peer.reason)));
  std::vector<std::weak_ptr<WorkerChannel>> channels;
  {
    MutexLock lock(mutex_);
    lost_ = error;
    channels = channels_;
  }
  for (const auto& weak : channels) {
    if (const auto channel = weak.lock()) channel->fail(error);
  }
}

/// The first failure that a worker has reported, or whom the heartbeat has lost; null: neither is known.
std::exception_ptr WorkerGroup::known_cause() {
  {
    MutexLock lock(mutex_);
    if (lost_) return lost_;
  }
  try {
    MutexLock lock(cause_mutex_);
    if (!causes_->check({kFailures})) return nullptr;
    const auto bytes = causes_->get(kFailures);
    return std::make_exception_ptr(
        PeerLost(std::string(bytes.begin(), std::find(bytes.begin(), bytes.end(), '\n'))));
  } catch (const std::exception&) {  // the store has gone with worker 0, of which the heartbeat will tell
    return nullptr;
  }
}

std::exception_ptr WorkerGroup::explain(const std::string& op, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveMismatch&) {
    return error;
  } catch (const CollectiveAborted&) {
    return error;
  } catch (...) {
    const auto deadline = Clock::now() + kCauseSearch;
    std::exception_ptr cause;
    while (!(cause = known_cause()) && Clock::now() < deadline) std::this_thread::sleep_for(kPoll);
    {
      MutexLock lock(mutex_);
      has_failed_ = true;
    }
    if (cause) return cause;
    return std::make_exception_ptr(
        PeerLost(c10::str("[", op, "] the connection to another worker broke: ", error_line(error))));
  }
}

void WorkerGroup::report(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost&) {
    return;  // not this one's failure
  } catch (...) {
    {
      MutexLock lock(mutex_);
      if (std::exchange(has_failed_, true)) return;
    }
    try {
      MutexLock lock(cause_mutex_);
      causes_->append(kFailures, bytes_of(c10::str(name_of(rank_), ": ", error_line(error), "\n")));
    } catch (const std::exception&) {  // nobody is left to be told
    }
  }
}

namespace {

/// Every worker's tensor of one size, in a row each.
at::Tensor gather_rows_of(c10d::Backend& backend, const at::Tensor& own) {
  const at::Tensor all = at::empty({backend.getSize(), own.numel()}, own.options());
  std::vector<std::vector<at::Tensor>> parts{all.unbind(0)};
  std::vector<at::Tensor> inputs{own};
  backend.allgather(parts, inputs)->wait();
  return all;
}

}  // namespace

std::vector<std::string> WorkerGroup::gather(const std::string& own) {
  std::vector<std::string> texts;
  between_runs_->exchange("gather texts", [&](c10d::Backend& backend) {
    const at::Tensor size = at::empty({1}, at::kLong);
    *size.mutable_data_ptr<int64_t>() = static_cast<int64_t>(own.size());
    const at::Tensor sizes = gather_rows_of(backend, size);
    const int64_t* lengths = sizes.const_data_ptr<int64_t>();
    const int64_t most = std::max<int64_t>(1, *std::max_element(lengths, lengths + size_));
    const at::Tensor text = at::zeros({most}, at::kByte);
    std::memcpy(text.mutable_data_ptr<uint8_t>(), own.data(), own.size());
    const at::Tensor all = gather_rows_of(backend, text);
    for (int worker = 0; worker < size_; ++worker) {
      const auto* row = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>()) + worker * most;
      texts.emplace_back(row, static_cast<size_t>(lengths[worker]));
    }
    return WorkerChannel::Works{};
  });
  return texts;
}

std::vector<std::vector<at::Tensor>> WorkerGroup::gather_tensors(const std::vector<at::Tensor>& own) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> here;
  std::string text = c10::str(own.size());
  for (const auto& tensor : own) {
    here.push_back(tensor.detach().cpu().contiguous());
    text += c10::str(" ", static_cast<int>(tensor.scalar_type()), " ", tensor.dim());
    for (const int64_t size : tensor.sizes()) text += c10::str(" ", size);
  }
  text += '\n';
  for (const auto& tensor : here)
    text.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  std::vector<std::vector<at::Tensor>> all;
  for (const auto& of_worker : gather(text)) {
    std::istringstream header(of_worker.substr(0, of_worker.find('\n')));
    size_t offset = of_worker.find('\n') + 1;
    size_t count = 0;
    header >> count;
    auto& tensors = all.emplace_back();
    for (size_t i = 0; i < count; ++i) {
      int dtype = 0;
      size_t dim = 0;
      header >> dtype >> dim;
      std::vector<int64_t> sizes(dim);
      for (int64_t& size : sizes) header >> size;
      const at::Tensor tensor = at::empty(sizes, static_cast<at::ScalarType>(dtype));
      std::memcpy(tensor.mutable_data_ptr(), of_worker.data() + offset, tensor.nbytes());
      offset += tensor.nbytes();
      tensors.push_back(tensor);
    }
  }
  return all;
}

void WorkerGroup::check_same(const std::string& what, const std::vector<std::string>& lines) {
  WorkerCard own{.num_replicas = 0};
  for (const auto& line : lines) own.facts.emplace_back("", line);
  const auto texts = gather(own.text());
  for (int worker = 1; worker < size_; ++worker) {
    if (texts[static_cast<size_t>(worker)] == texts[0]) continue;
    const auto difference =
        WorkerCard::parse(texts[static_cast<size_t>(worker)]).difference(WorkerCard::parse(texts[0]));
    if (!difference) continue;
    const auto shown = [](const std::string& line) { return line.empty() ? "none" : line; };
    throw ClusterError(c10::str("[", what, "] expected the same on all workers, but ", name_of(0), " has ",
                                shown(difference->there), " where ", name_of(worker), " has ",
                                shown(difference->here)));
  }
}

void WorkerGroup::broadcast_(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  const BytePlaces places(tensors);
  if (places.total() == 0) return;
  const at::Tensor buffer = at::empty({places.total()}, at::kByte);
  for (size_t i = 0; rank_ == 0 && i < tensors.size(); ++i)
    places.of(buffer, i, tensors[i]).copy_(tensors[i]);
  between_runs_->exchange(c10::str("broadcast of ", places.total(), " bytes"), [&](c10d::Backend& backend) {
    std::vector<at::Tensor> one{buffer};
    return WorkerChannel::Works{backend.broadcast(one)};
  });
  for (size_t i = 0; rank_ != 0 && i < tensors.size(); ++i) {
    at::Tensor tensor = tensors[i];
    tensor.copy_(places.of(buffer, i, tensor));
  }
}

at::Tensor WorkerGroup::sum(const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  at::Tensor sum = at::empty(value.sizes(), summable_dtype(value.scalar_type()));
  sum.copy_(value);
  between_runs_->exchange(c10::str("sum of ", sum.numel(), " ", sum.scalar_type()),
                          [&](c10d::Backend& backend) {
                            if (sum.numel() == 0) return WorkerChannel::Works{};
                            std::vector<at::Tensor> one{sum};
                            return WorkerChannel::Works{backend.allreduce(one)};
                          });
  return sum.to(value.scalar_type());
}

}  // namespace lockstep
