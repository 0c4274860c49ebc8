#include "lockstep/runtime/workers/worker_failures.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/error_text.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSearchPoll{10};

/// Decides when a search has taken long enough.
class SearchLimit {
 public:
  explicit SearchLimit(const CauseSearch& search) : search_(search), first_round_(round()) {}

  bool is_reached() const {
    const auto elapsed = Clock::now() - begin_;
    if (elapsed < search_.time) return false;
    if (elapsed >= search_.longest) return true;
    const auto now = round();
    return !now || !first_round_ || *now - *first_round_ >= search_.detector_rounds;
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<uint64_t> round() const { return search_.rounds ? search_.rounds() : std::nullopt; }

  const CauseSearch& search_;
  const Clock::time_point begin_ = Clock::now();
  const std::optional<uint64_t> first_round_;
};

}  // namespace

/// Looks for a worker's report, in a thread that is left behind if the store does not answer: its clients
/// have no timeout for that.
struct WorkerFailures::ReportReader {
  std::atomic<bool> is_over{false};
  std::atomic<bool> is_store_gone{false};
  Mutex mutex;
  std::string found LOCKSTEP_GUARDED_BY(mutex);

  /// `is_counted` is set by the first search that reads.
  void run(c10d::Store& store, std::atomic<bool>& is_counted) {
    try {
      while (!is_over && !store.check({kKey})) std::this_thread::sleep_for(kSearchPoll);
      if (is_over) return;
      const auto bytes = store.get(kKey);
      {
        MutexLock lock(mutex);
        found.assign(bytes.begin(), std::find(bytes.begin(), bytes.end(), '\n'));
      }
      if (!is_counted.exchange(true)) store.add(kReadKey, 1);
    } catch (const std::exception&) {
      is_store_gone = true;
    }
  }

  std::string result() {
    MutexLock lock(mutex);
    return found;
  }
};

std::exception_ptr WorkerFailures::lose(const LostPeer& peer) {
  const auto error =
      std::make_exception_ptr(PeerLost(peer.rank == rank_ ? c10::str(name_of(rank_), " was ", peer.reason)
                                                          : c10::str(peer.name, " was lost: ", peer.reason)));
  MutexLock lock(mutex_);
  lost_ = error;
  has_failed_ = true;
  return error;
}

void WorkerFailures::report(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost&) {
    return;
  } catch (...) {  // any other error is this worker's own
  }
  {
    MutexLock lock(mutex_);
    if (std::exchange(has_failed_, true)) return;
    own_ = error;
  }
  const std::string line = c10::str(name_of(rank_), ": ", error_line(error), "\n");
  try {
    store_->append(kKey, {line.begin(), line.end()});
    // This worker looks for no other cause from now on.
    if (rank_ != 0 && !is_counted_->exchange(true)) store_->add(kReadKey, 1);
  } catch (const std::exception&) {  // nobody is left to be told
  }
}

std::exception_ptr WorkerFailures::explain(const std::string& op, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveMismatch&) {
    return error;
  } catch (const CollectiveAborted&) {
    return error;
  } catch (...) {  // the backend's error
  }
  const auto [cause, is_store_gone] = search_cause();
  if (cause) return cause;
  {
    MutexLock lock(mutex_);
    has_failed_ = true;
  }
  const std::string who = is_store_gone ? name_of(0) + " has ended: " : "";
  return std::make_exception_ptr(
      PeerLost(c10::str("[", op, "] ", who, "the connection to another worker broke: ", error_line(error))));
}

WorkerFailures::Found WorkerFailures::search_cause() {
  {
    MutexLock lock(mutex_);
    if (own_) return {own_};
  }
  const auto reader = std::make_shared<ReportReader>();
  std::thread([reader, store = store_, is_counted = is_counted_] {
    reader->run(*store, *is_counted);
  }).detach();
  const SearchLimit limit(search_);
  std::exception_ptr cause;
  while (true) {
    const bool is_last = limit.is_reached();  // before looking: the detector may find it in between
    cause = lost();
    const std::string reported = reader->result();
    if (!cause && !reported.empty()) cause = std::make_exception_ptr(PeerLost(reported));
    if (cause || is_last) break;
    std::this_thread::sleep_for(kSearchPoll);
  }
  reader->is_over = true;
  if (cause) {
    MutexLock lock(mutex_);
    has_failed_ = true;
  }
  return {cause, reader->is_store_gone};
}

std::exception_ptr WorkerFailures::lost() const {
  MutexLock lock(mutex_);
  return lost_;
}

bool WorkerFailures::has_failed() const {
  MutexLock lock(mutex_);
  return has_failed_;
}

bool WorkerFailures::is_origin() const {
  MutexLock lock(mutex_);
  return own_ != nullptr;
}

}  // namespace lockstep
