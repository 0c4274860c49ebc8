#include "lockstep/strategies/core/stop_agreement.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/strategies/core/internal/strategy_core.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {
namespace {

// Often enough for processes that have 30 s to end, seldom enough for a store with a thousand clients.
constexpr std::chrono::milliseconds kRequestPoll{100};
constexpr std::chrono::milliseconds kLimitPoll{10};
constexpr std::chrono::milliseconds kLossPoll{500};
// Enough for one exchange with a store that answers.
constexpr std::chrono::milliseconds kLeaving{300};

std::string limit_key(int worker) {
  return "limit/" + std::to_string(worker);
}

}  // namespace

/// Once a worker knows of a request, it publishes its limit: the step after its current one, at which it will
/// wait. All workers stop at the largest limit. No worker passes its own limit before it knows those of all.
/// A separate thread learns them, so that a worker that waits for another one within a step blocks nobody.
class StopAgreement::Workers {
 public:
  Workers(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<const WorkerLayout> layout,
          std::function<std::exception_ptr()> find_cause, std::function<int()> reason)
      : store_(std::move(store)),
        layout_(std::move(layout)),
        find_cause_(std::move(find_cause)),
        reason_(std::move(reason)) {}

  int should_stop() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++steps_;
    // If the lost worker hosts the store, the store may never answer.
    const auto is_over = [this] { return stop_ || is_failed_; };
    while (limit_ && steps_ >= *limit_ && !changed_.wait_for(lock, kLossPoll, is_over)) {
      lock.unlock();
      const bool is_lost = find_cause_() != nullptr;
      lock.lock();
      is_failed_ = is_failed_ || is_lost;
    }
    return stop_ && steps_ >= *stop_ ? agreed_reason_ : 0;
  }

  /// Runs in the separate thread.
  void agree() {
    try {
      if (await_request()) find_stop();
    } catch (const std::exception&) {
      // A worker or the store is gone; the next call that needs it reports that better.
      const std::lock_guard<std::mutex> lock(mutex_);
      is_failed_ = true;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    is_done_ = true;
    changed_.notify_all();
  }

  /// Lets the thread end and waits briefly. If the store's machine no longer answers, the thread may never
  /// end.
  void leave() {
    std::unique_lock<std::mutex> lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, kLeaving, [this] { return is_done_; });
    reason_ = nullptr;
  }

 private:
  /// Returns false if the training has ended without a request. Then it sets a limit, too, for workers that
  /// learn of a request after this one has ended.
  bool await_request() {
    for (;;) {
      // The first worker sets the request, and all others find it.
      if (const int reason = own_reason(); reason != 0) {
        const std::string text = std::to_string(reason);
        store_->compareSet("request", std::vector<uint8_t>(), std::vector<uint8_t>(text.begin(), text.end()));
      }
      if (store_->check({"request"})) return true;
      std::unique_lock<std::mutex> lock(mutex_);
      if (!changed_.wait_for(lock, kRequestPoll, [this] { return is_over_; })) continue;
      const int64_t end = steps_;
      lock.unlock();
      store_->set(limit_key(layout_->worker()), std::to_string(end));
      return false;
    }
  }

  int own_reason() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return reason_ ? reason_() : 0;
  }

  void find_stop() {
    const int64_t limit = make_limit();
    store_->set(limit_key(layout_->worker()), std::to_string(limit));
    int64_t stop = limit;
    for (int worker = 0; worker < layout_->num_workers(); ++worker) {
      const auto other = await_limit(worker);
      if (!other) return;
      stop = std::max(stop, *other);
    }
    const auto reason = static_cast<int>(number_at("request"));
    const std::lock_guard<std::mutex> lock(mutex_);
    agreed_reason_ = reason;
    stop_ = stop;
  }

  int64_t make_limit() {
    const std::lock_guard<std::mutex> lock(mutex_);
    limit_ = is_over_ ? steps_ : steps_ + 1;
    return *limit_;
  }

  /// Returns nothing if the training is over and nobody needs the limit any more.
  std::optional<int64_t> await_limit(int worker) {
    while (!store_->check({limit_key(worker)})) {
      std::unique_lock<std::mutex> lock(mutex_);
      if (changed_.wait_for(lock, kLimitPoll, [this] { return is_over_; })) return std::nullopt;
    }
    return number_at(limit_key(worker));
  }

  int64_t number_at(const std::string& key) {
    const auto text = store_->get(key);
    return std::stoll(std::string(text.begin(), text.end()));
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::shared_ptr<const WorkerLayout> layout_;
  const std::function<std::exception_ptr()> find_cause_;
  std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  std::function<int()> reason_;
  int64_t steps_ = 0;
  std::optional<int64_t> limit_;
  std::optional<int64_t> stop_;
  int agreed_reason_ = 0;
  bool is_over_ = false;
  bool is_failed_ = false;
  bool is_done_ = false;
};

StopAgreement::StopAgreement(Strategy& strategy, std::function<int()> reason) : reason_(std::move(reason)) {
  const auto& workers = strategy.core_->config.workers;
  if (!workers || workers->layout()->num_workers() == 1) return;
  workers_ = std::make_shared<Workers>(workers->open_key_space()->clone(), workers->layout(),
                                       workers->cause_finder(), reason_);
  // Not joined: see leave().
  std::thread([workers = workers_] { workers->agree(); }).detach();
}

StopAgreement::~StopAgreement() {
  if (workers_) workers_->leave();
}

int StopAgreement::should_stop() {
  return workers_ ? workers_->should_stop() : reason_();
}

}  // namespace lockstep
