#include "lockstep/runtime/workers/worker_rendezvous.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <thread>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kMeetPoll{10};
constexpr milliseconds kLastWord{2000};

// Key of worker 0's reason for giving up.
constexpr const char* kGivenUp = "given up";

class Meeting {
 public:
  Meeting(c10d::Store& store, const WorkerRendezvousOptions& options) : store_(store), options_(options) {}

  std::vector<WorkerInfo> run(const WorkerInfo& own) {
    show(own);
    std::vector<WorkerInfo> infos;
    for (int worker = 0; worker < options_.size; ++worker) {
      wait_for(worker);
      infos.push_back(WorkerInfo::parse(read(key_of(worker))));
      // Compares this worker's info with worker 0's before waiting for workers that may never come.
      refuse_difference(options_.rank, own, infos[0]);
      refuse_difference(worker, infos.back(), infos[0]);
    }
    return infos;
  }

 private:
  static std::string key_of(int worker) { return c10::str("worker/", worker); }

  std::string read(const std::string& key) {
    const auto bytes = store_.get(key);
    return {bytes.begin(), bytes.end()};
  }

  void show(const WorkerInfo& own) {
    const std::string key = key_of(options_.rank);
    if (store_.add(key + "/claims", 1) > 1) {
      throw ClusterError(c10::str("[join] another process has joined at ", options_.address, " as worker ",
                                  options_.rank, " already: each needs a task index, or rank, of its own"));
    }
    store_.set(key, own.text());
    store_.add("present", 1);
  }

  void wait_for(int worker) {
    while (!store_.check({key_of(worker)})) {
      if (store_.check({kGivenUp})) leave(read(kGivenUp));
      if (worker == 0 && options_.has_other_token && options_.has_other_token()) {
        throw ClusterError(c10::str("[join] worker ", options_.rank, " came to ", options_.address,
                                    " with another job token than worker 0: all processes of a job need the "
                                    "same LOCKSTEP_JOB_TOKEN, or the same LOCKSTEP_JOB_ID without a token"));
      }
      if (Clock::now() >= deadline_) {
        const std::string text =
            c10::str("[join] worker ", worker, " of ", options_.size, " did not come to ", options_.address,
                     " within ", std::chrono::duration<double>(options_.timeout).count(),
                     " s: is it running, with the same cluster and job token?");
        if (options_.rank == 0) store_.set(kGivenUp, text);
        leave(text);
      }
      std::this_thread::sleep_for(kMeetPoll);
    }
  }

  void refuse_difference(int worker, const WorkerInfo& info, const WorkerInfo& first) {
    const auto difference = info.difference(first);
    if (!difference) return;
    const auto shown = [](const std::string& value) { return value.empty() ? "none" : "'" + value + "'"; };
    leave(c10::str("[join] expected the same ", difference->fact, " on all workers, but ",
                   worker_name(0, first), " has ", shown(difference->there), " and ",
                   worker_name(worker, info), " has ", shown(difference->here)));
  }

  /// Leaves time for the others to read worker 0's reason, which is lost with its store.
  [[noreturn]] void leave(const std::string& reason) {
    try {
      store_.add("refused", 1);
      const auto end = Clock::now() + kLastWord;
      while (options_.rank == 0 && Clock::now() < end && store_.add("refused", 0) < store_.add("present", 0))
        std::this_thread::sleep_for(kMeetPoll);
    } catch (const c10::Error&) {
      // Worker 0 ends as soon as it has counted this worker, maybe before its store has answered.
    }
    throw ClusterError(reason);
  }

  c10d::Store& store_;
  const WorkerRendezvousOptions& options_;
  const Clock::time_point deadline_ = Clock::now() + options_.timeout;
};

}  // namespace

std::vector<WorkerInfo> meet_workers(c10d::Store& store, const WorkerInfo& own,
                                     const WorkerRendezvousOptions& options) {
  return Meeting(store, options).run(own);
}

std::string worker_name(int rank, const WorkerInfo& info) {
  return c10::str("worker ", rank, " (", info.host, ")");
}

}  // namespace lockstep
