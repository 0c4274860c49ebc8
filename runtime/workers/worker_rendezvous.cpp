#include "lockstep/runtime/workers/worker_rendezvous.h"

#include <algorithm>
#include <cstdint>
#include <system_error>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/deadline.h"
#include "lockstep/runtime/base/internal/little_endian.h"
#include "lockstep/runtime/base/internal/number_text.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// For calls that do not wait for other workers.
constexpr milliseconds kAnswerTime{2000};

// Key of the reason why a worker ended the meeting.
constexpr const char* kGivenUp = "given up";
// Key of all workers' information, which worker 0 sets once all have come.
constexpr const char* kList = "workers";

std::string list_of(const std::vector<WorkerInfo>& infos) {
  LittleEndianWriter writer;
  for (const auto& info : infos) writer.write_text(info.text());
  return {writer.bytes().begin(), writer.bytes().end()};
}

class Meeting {
 public:
  Meeting(StoreClient& store, const WorkerRendezvousOptions& options) : store_(store), options_(options) {}

  std::vector<WorkerInfo> run(const WorkerInfo& own) {
    show(own);
    if (options_.rank == 0) return collect(own);
    // Compares this worker's information with worker 0's before waiting for workers that may never come.
    const auto first = WorkerInfo::parse(read({key_of(0)}).front());
    refuse_difference(options_.rank, own, first);
    return parse_list(read({kList}).front());
  }

 private:
  static std::string key_of(int worker) { return "worker/" + std::to_string(worker); }

  milliseconds time_left() const {
    return std::max(std::chrono::ceil<milliseconds>(deadline_ - Clock::now()), milliseconds(0));
  }

  void show(const WorkerInfo& own) {
    const std::string key = key_of(options_.rank);
    if (store_.add(key + "/claims", 1, {.timeout = time_left()}) > 1) {
      throw ClusterError("[join] another process has joined at " + options_.address + " as worker " +
                         std::to_string(options_.rank) +
                         " already: each needs a task index, or rank, of its own");
    }
    store_.set({key}, {own.text()}, {.timeout = time_left()});
  }

  /// Worker 0 waits for the others and tells each of them about all. If each waited for each, the store would
  /// keep a million waits for a thousand workers, and send a million values.
  std::vector<WorkerInfo> collect(const WorkerInfo& own) {
    std::vector<std::string> keys;
    keys.reserve(static_cast<size_t>(options_.size));
    for (int worker = 0; worker < options_.size; ++worker) keys.push_back(key_of(worker));
    std::vector<WorkerInfo> infos;
    infos.reserve(keys.size());
    for (const auto& text : read(keys)) {
      infos.push_back(WorkerInfo::parse(text));
      refuse_difference(static_cast<int>(infos.size()) - 1, infos.back(), own);
      infos.back().facts.clear();  // all have the same
    }
    store_.set({kList}, {list_of(infos)}, {.timeout = time_left()});
    return infos;
  }

  std::vector<WorkerInfo> parse_list(const std::string& list) const {
    LittleEndianReader reader({reinterpret_cast<const uint8_t*>(list.data()), list.size()});
    std::vector<WorkerInfo> infos;
    infos.reserve(static_cast<size_t>(options_.size));
    while (reader.num_left() > 0) infos.push_back(WorkerInfo::parse(reader.read_text()));
    if (infos.size() != static_cast<size_t>(options_.size))
      throw InvalidArgument("[join] expected " + std::to_string(options_.size) + " workers, but got " +
                            std::to_string(infos.size()));
    return infos;
  }

  /// Waits for the keys.
  std::vector<std::string> read(const std::vector<std::string>& keys) {
    try {
      auto values = store_.get(keys, {kGivenUp}, {.timeout = time_left()});
      if (values) return std::move(*values);
    } catch (const std::system_error& error) {
      if (error.code() != std::errc::timed_out) throw;
      give_up();
    }
    throw ClusterError(store_.get({kGivenUp}, {}, {.timeout = kAnswerTime})->front());
  }

  /// Throws because of the first worker that has not come.
  [[noreturn]] void give_up() {
    int missing = 0;
    const StoreCallOptions call{.timeout = kAnswerTime};
    while (missing + 1 < options_.size && store_.check({key_of(missing)}, call)) ++missing;
    const std::string text =
        "[join] worker " + std::to_string(missing) + " of " + std::to_string(options_.size) +
        " did not come to " + options_.address + " within " +
        short_number(std::chrono::duration<double>(options_.timeout).count()) +
        " s: is it running, with the same cluster and job token?" + (options_.hint ? options_.hint() : "");
    // The others began to wait at other times, but worker 0's store does not outlive it.
    if (options_.rank == 0) end_meeting(text);
    throw ClusterError(text);
  }

  void refuse_difference(int worker, const WorkerInfo& info, const WorkerInfo& first) {
    const auto difference = info.difference(first);
    if (!difference) return;
    const auto shown = [](const std::string& value) { return value.empty() ? "none" : "'" + value + "'"; };
    const std::string text = "[join] expected the same " + difference->fact + " on all workers, but " +
                             worker_name(0, first) + " has " + shown(difference->there) + " and " +
                             worker_name(worker, info) + " has " + shown(difference->here);
    end_meeting(text);
    throw ClusterError(text);
  }

  /// Ends the waiting of all workers.
  void end_meeting(const std::string& reason) {
    try {
      store_.compare_set(kGivenUp, "", reason, {.timeout = kAnswerTime});
    } catch (const std::system_error&) {
      // Worker 0 may have read the reason of another worker, and ended.
    }
  }

  StoreClient& store_;
  const WorkerRendezvousOptions& options_;
  const Clock::time_point deadline_ = deadline_after(options_.timeout);
};

}  // namespace

std::vector<WorkerInfo> meet_workers(StoreClient& store, const WorkerInfo& own,
                                     const WorkerRendezvousOptions& options) {
  return Meeting(store, options).run(own);
}

std::string worker_name(int rank, const WorkerInfo& info) {
  return "worker " + std::to_string(rank) + " (" + info.host + ")";
}

}  // namespace lockstep
