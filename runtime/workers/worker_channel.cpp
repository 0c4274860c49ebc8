#include "lockstep/runtime/workers/worker_channel.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <cstring>
#include <future>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/intra_op_threads.h"
#include "lockstep/runtime/exchange/exchange_message.h"

namespace lockstep {
namespace {

// How much of another worker's call is shown if the two differ.
constexpr int64_t kTextBytes = 1024;
// Over a ComparingBackend, which needs no exchange of its own for each collective to compare the calls.
constexpr int kCollectivesPerTimes = 50;

template <typename Error>
bool is_a(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    return true;
  } catch (...) {  // another error
    return false;
  }
}

}  // namespace

WorkerChannel::WorkerChannel(Options options)
    : options_(std::move(options)), comparing_(dynamic_cast<ComparingBackend*>(options_.backend.get())) {
  // More threads for operators, such as a compression's casts, would spin on the replicas' cores.
  thread_ = start_thread(1, [this] { carry_on(); });
}

WorkerChannel::~WorkerChannel() {
  bool is_healthy = false;
  {
    MutexLock lock(mutex_);
    is_healthy = !is_carrying_ && submitted_.empty() && !error_;
    is_ending_ = is_healthy;
    changed_.notify_all();
  }
  if (!is_healthy) {
    fail(std::make_exception_ptr(CollectiveAborted("[" + options_.op + "] the channel is closed")));
    MutexLock lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

std::shared_ptr<WorkerChannel> WorkerChannel::open_pair(int peer, int number) const {
  if (!options_.open_pair) {
    throw InvalidArgument("[" + options_.op +
                          "] messages between worker processes need the communication 'exchange' or 'auto'");
  }
  return options_.open_pair(peer, number);
}

void WorkerChannel::begin_run(uint64_t sequence) {
  MutexLock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  firsts_.insert(sequence);
}

void WorkerChannel::submit(uint64_t sequence, Exchange exchange) {
  std::exception_ptr error;
  {
    MutexLock lock(mutex_);
    error = error_;
    if (!error) {
      submitted_.emplace(sequence, Submitted{std::move(exchange), Clock::now()});
      changed_.notify_all();
      return;
    }
  }
  exchange.finish(error);
}

void WorkerChannel::exchange(const std::string& description, std::function<Works(c10d::Backend&)> start) {
  uint64_t sequence = 0;
  {
    MutexLock lock(mutex_);
    sequence = num_exchanges_++;
  }
  exchange_at(sequence, description, std::move(start));
}

void WorkerChannel::exchange_at(uint64_t sequence, const std::string& description,
                                std::function<Works(c10d::Backend&)> start) {
  std::promise<void> done;
  submit(sequence, {description, std::move(start), nullptr, [&done](const std::exception_ptr& error) {
                      if (error) {
                        done.set_exception(error);
                      } else {
                        done.set_value();
                      }
                    }});
  done.get_future().get();
}

void WorkerChannel::drain() {
  MutexLock lock(mutex_);
  while (!error_ && (is_carrying_ || !submitted_.empty())) changed_.wait(mutex_);
  if (error_) std::rethrow_exception(error_);
}

void WorkerChannel::fail(std::exception_ptr error) {
  cut_off(std::move(error), /*is_reported=*/true);
}

std::exception_ptr WorkerChannel::error() const {
  MutexLock lock(mutex_);
  return error_;
}

void WorkerChannel::check_usable() const {
  if (const auto failed = error()) std::rethrow_exception(failed);
}

CollectivePosition WorkerChannel::position() const {
  MutexLock lock(mutex_);
  return {.channel = options_.number,
          .op = options_.op,
          .sequence = is_carrying_ ? next_ - 1 : next_,
          .description = is_carrying_ ? carried_ : std::string(),
          .time = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since_),
          .peer = options_.peer,
          .members = options_.members};
}

void WorkerChannel::watch(std::function<void()> on_failure) {
  {
    MutexLock lock(watch_mutex_);
    on_failure_ = std::move(on_failure);
  }
  if (error()) tell_watcher();
}

void WorkerChannel::tell_watcher() {
  MutexLock lock(watch_mutex_);
  if (auto tell = std::exchange(on_failure_, nullptr)) tell();
}

void WorkerChannel::cut_off(std::exception_ptr error, bool is_reported) {
  std::map<uint64_t, Submitted> dropped;
  bool is_first = false;
  {
    MutexLock lock(mutex_);
    is_first = !error_;
    if (is_first) error_ = std::move(error);
    error = error_;
    dropped.swap(submitted_);
    changed_.notify_all();
  }
  if (is_first) {
    tell_watcher();
    if (is_reported) options_.report(error);
    options_.backend->abort();
  }
  for (auto& [sequence, submitted] : dropped) submitted.exchange.finish(error);
}

void WorkerChannel::carry_on() {
  auto done_at = Clock::now();
  while (true) {
    Exchange exchange;
    uint64_t sequence = 0;
    Clock::duration busy{};
    {
      MutexLock lock(mutex_);
      while (!is_ending_ && (submitted_.empty() || submitted_.begin()->first != next_)) changed_.wait(mutex_);
      if (is_ending_) return;
      is_carrying_ = true;
      auto first = submitted_.extract(submitted_.begin());
      exchange = std::move(first.mapped().exchange);
      busy = std::max(first.mapped().at - done_at, Clock::duration::zero());
      sequence = next_++;
      if (firsts_.erase(sequence) > 0) exchange.description += ", the first of a run";
      carried_ = exchange.description;
      since_ = Clock::now();
    }
    auto error = carry(sequence, exchange, std::chrono::duration_cast<std::chrono::microseconds>(busy));
    done_at = Clock::now();
    if (!error && options_.completed) *options_.completed = sequence + 1;
    {
      MutexLock lock(mutex_);
      is_carrying_ = false;
      since_ = done_at;
      if (error) error = error_;
      changed_.notify_all();
    }
    exchange.finish(error);
  }
}

/// Returns the error, of which all workers have been told, or null.
std::exception_ptr WorkerChannel::carry(uint64_t sequence, const Exchange& exchange,
                                        std::chrono::microseconds busy) {
  const at::NoGradGuard no_grad;
  bool is_own = false;  // whether a failure is this worker's own, of which the others know nothing
  try {
    if (comparing_ != nullptr) {
      comparing_->begin_call(sequence, exchange.description);
    } else {
      check_same(sequence, exchange.description, busy);
    }
    if (exchange.start) {
      is_own = true;
      const auto works = exchange.start(*options_.backend);
      is_own = false;
      for (const auto& work : works) work->wait();
    }
    if (comparing_ != nullptr) {
      comparing_->end_call();
      compare_times(busy);
    }
    is_own = true;
    if (exchange.complete) exchange.complete();
    return nullptr;
  } catch (...) {
    bool is_consequence = false;
    {
      MutexLock lock(mutex_);
      is_consequence = error_ != nullptr;
    }
    const auto error = std::current_exception();
    // A ComparingBackend works in this thread and tells by the type that others are the reason. Only the
    // workers that exchange with each other find a mismatch.
    const bool is_mismatch = comparing_ != nullptr && is_a<CollectiveMismatch>(error);
    if (comparing_ != nullptr) is_own = !is_mismatch && !is_a<BrokenExchange>(error);
    if (!is_consequence) cut_off(is_own ? error : options_.explain(error), is_own || is_mismatch);
    return error;
  }
}

/// The backend matches calls only by their order, and would add up tensors that do not belong together.
void WorkerChannel::check_same(uint64_t sequence, const std::string& description,
                               std::chrono::microseconds busy) {
  c10d::Backend& backend = *options_.backend;
  // The second value is how long this worker took to get here.
  const at::Tensor own = at::empty({2}, at::kLong);
  own.mutable_data_ptr<int64_t>()[0] = static_cast<int64_t>(fingerprint_of(description));
  own.mutable_data_ptr<int64_t>()[1] = busy.count();
  const at::Tensor all = gather_rows_of_ranks(backend, own);
  const auto* values = all.const_data_ptr<int64_t>();
  std::vector<int64_t> hashes;
  std::vector<std::chrono::microseconds> times;
  for (int worker = 0; worker < backend.getSize(); ++worker) {
    hashes.push_back(values[2 * worker]);
    times.emplace_back(values[2 * worker + 1]);
  }
  if (std::equal(hashes.begin() + 1, hashes.end(), hashes.begin())) {
    if (const auto straggler = stragglers_.add(times); straggler && backend.getRank() == 0)
      options_.on_straggler(straggler->worker, straggler->times);
    return;
  }

  const at::Tensor text = at::zeros({kTextBytes}, at::kByte);
  const auto length = std::min<size_t>(description.size(), kTextBytes - 1);
  std::memcpy(text.mutable_data_ptr<uint8_t>(), description.data(), length);
  const at::Tensor texts = gather_rows_of_ranks(backend, text);
  const auto text_of = [&](size_t worker) {
    return std::string(reinterpret_cast<const char*>(texts.const_data_ptr<uint8_t>()) + worker * kTextBytes);
  };
  // Every worker names the same two workers.
  size_t other = 1;
  while (other + 1 < hashes.size() && hashes[other] == hashes[0]) ++other;
  throw CollectiveMismatch(c10::str("[", options_.op, "] collective #", sequence, ": ", options_.name_of(0),
                                    " called ", text_of(0), ", but ",
                                    options_.name_of(static_cast<int>(other)), " called ", text_of(other)));
}

/// Looks for a straggler, now and then.
void WorkerChannel::compare_times(std::chrono::microseconds busy) {
  if (!options_.on_straggler) return;
  busy_ += busy;
  if (++num_busy_ < kCollectivesPerTimes) return;
  const at::Tensor own = at::empty({1}, at::kLong);
  *own.mutable_data_ptr<int64_t>() = std::exchange(busy_, {}).count();
  const at::Tensor all = gather_rows_of_ranks(*options_.backend, own);
  std::vector<std::chrono::microseconds> times;
  for (int worker = 0; worker < options_.backend->getSize(); ++worker)
    times.emplace_back(all.const_data_ptr<int64_t>()[worker]);
  if (const auto straggler = stragglers_.add(times, std::exchange(num_busy_, 0));
      straggler && options_.backend->getRank() == 0)
    options_.on_straggler(straggler->worker, straggler->times);
}

at::Tensor gather_rows_of_ranks(c10d::Backend& backend, const at::Tensor& own) {
  const at::Tensor all = at::empty({backend.getSize(), own.numel()}, own.options());
  std::vector<std::vector<at::Tensor>> parts{all.unbind(0)};
  std::vector<at::Tensor> inputs{own};
  backend.allgather(parts, inputs)->wait();
  return all;
}

}  // namespace lockstep
