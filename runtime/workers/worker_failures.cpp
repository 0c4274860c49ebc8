#include "lockstep/runtime/workers/worker_failures.h"

#include <c10/util/StringUtil.h>

#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/error_text.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSearchPoll{10};
// For worker 0's store, which may be gone.
constexpr milliseconds kAnswerTime{2000};

// Counts the workers, except worker 0, that have read about a failure.
constexpr const char* kReadKey = "failures/read";
constexpr const char* kAllReadKey = "failures/all read";

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

/// Looks for another worker's report.
class WorkerFailures::ReportReader {
 public:
  explicit ReportReader(StoreClient& store) : store_(store), number_(begin(store)) {}
  ~ReportReader() { store_.end_get(number_); }
  ReportReader(const ReportReader&) = delete;
  ReportReader& operator=(const ReportReader&) = delete;

  /// Returns the first line of what has been reported; empty if there is nothing yet.
  std::string result() {
    if (is_over_) return {};
    try {
      const auto values = store_.poll_get(number_);
      return values && !values->empty() ? values->front().substr(0, values->front().find('\n')) : "";
    } catch (const std::system_error& error) {
      is_over_ = true;
      is_store_gone_ = error.code() != std::errc::not_connected;  // unless this worker has left it
    } catch (const ClusterError&) {                               // the reports are too long to be read
      is_over_ = true;
    }
    return {};
  }
  bool is_store_gone() const { return is_store_gone_; }

 private:
  /// Returns 0, the number of no call, if the store is gone.
  static uint64_t begin(StoreClient& store) {
    try {
      return store.begin_get({kKey});
    } catch (const std::system_error&) {
      return 0;
    }
  }

  StoreClient& store_;
  const uint64_t number_;
  bool is_over_ = false;
  bool is_store_gone_ = false;
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
  tell(error);
}

/// Reports an error of which no other worker knows.
void WorkerFailures::tell(const std::exception_ptr& error) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(has_failed_, true)) return;
    own_ = error;
  }
  const std::string line = c10::str(name_of(rank_), ": ", error_line(error), "\n");
  try {
    store_->append(kKey, line, {.timeout = kAnswerTime});
  } catch (const std::exception&) {  // nobody is left to be told
    return;
  }
  count_reader();  // this worker looks for no other cause from now on
}

void WorkerFailures::count_reader() {
  if (rank_ == 0 || is_counted_.exchange(true)) return;
  try {
    const StoreCallOptions call{.timeout = kAnswerTime};
    if (store_->add(kReadKey, 1, call) + 1 == static_cast<int64_t>(names_.size()))
      store_->set({kAllReadKey}, {""}, call);
  } catch (const std::exception&) {  // worker 0 has ended
  }
}

void WorkerFailures::wait_for_readers(milliseconds limit) {
  try {
    const bool is_reported = names_.size() > 1 && store_->check({kKey}, {.timeout = kAnswerTime});
    if (is_reported) store_->get({kAllReadKey}, {}, {.timeout = limit});
  } catch (const std::exception&) {  // not all are left to read it
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
  const std::string who = is_store_gone ? name_of(0) + " has ended: " : "";
  const auto unexplained = std::make_exception_ptr(
      PeerLost(c10::str("[", op, "] ", who, "the connection to another worker broke: ", error_line(error))));
  tell(unexplained);  // the others may wait for this worker without end
  return unexplained;
}

WorkerFailures::Found WorkerFailures::search_cause() {
  {
    MutexLock lock(mutex_);
    if (own_) return {own_};
  }
  ReportReader reader(*store_);
  const SearchLimit limit(search_);
  std::exception_ptr cause;
  while (true) {
    const bool is_last = limit.is_reached();  // before looking: the detector may find it in between
    cause = lost();
    const std::string reported = reader.result();
    if (!reported.empty()) count_reader();
    if (!cause && !reported.empty()) cause = std::make_exception_ptr(PeerLost(reported));
    if (cause || is_last) break;
    std::this_thread::sleep_for(kSearchPoll);
  }
  if (cause) {
    MutexLock lock(mutex_);
    has_failed_ = true;
  }
  return {cause, reader.is_store_gone()};
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
