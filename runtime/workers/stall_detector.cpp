#include "lockstep/runtime/workers/stall_detector.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/mutex.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Counts the questions to all workers about where they are.
constexpr const char* kAskedKey = "stall/asked";
constexpr const char* kNumEndedKey = "ended";
// Two polls of the other workers, and some slack.
constexpr milliseconds kPatience{2000};
constexpr milliseconds kAnswerPoll{20};
// How long a message may be on its way from a worker that has ended.
constexpr milliseconds kLastMessage{2000};

std::string ended_key(int rank) {
  return c10::str("ended/", rank);
}

/// A rank's last answer: the number of the newest question at that time, and its position.
std::string position_key(int rank) {
  return c10::str("stall/position/", rank);
}

std::string in_seconds(milliseconds time) {
  return c10::str(std::chrono::duration_cast<std::chrono::seconds>(time).count(), " s");
}

struct Answer {
  int64_t question = 0;
  CollectivePosition position;
};

std::vector<uint8_t> encode(const Answer& answer) {
  const auto& position = answer.position;
  const auto text = c10::str(answer.question, ' ', position.channel, ' ', position.sequence, ' ',
                             position.time.count(), '\n', position.op, '\n', position.description);
  return {text.begin(), text.end()};
}

Answer decode(const std::vector<uint8_t>& bytes) {
  std::istringstream text(std::string(bytes.begin(), bytes.end()));
  Answer answer;
  milliseconds::rep time = 0;
  text >> answer.question >> answer.position.channel >> answer.position.sequence >> time;
  answer.position.time = milliseconds(time);
  text.ignore();
  std::getline(text, answer.position.op);
  std::getline(text, answer.position.description);
  return answer;
}

/// The collective waited in for the longest time, or else the position in the most recently used channel.
CollectivePosition main_position(const std::vector<CollectivePosition>& positions) {
  CollectivePosition found;
  bool is_found = false;
  for (const auto& position : positions) {
    const bool waits = !position.description.empty();
    const bool found_waits = !found.description.empty();
    const bool is_better =
        waits == found_waits ? (waits ? position.time > found.time : position.time < found.time) : waits;
    if (is_found && !is_better) continue;
    found = position;
    is_found = true;
  }
  return found;
}

bool is_same_collective(const CollectivePosition& one, const CollectivePosition& other) {
  return one.channel == other.channel && one.sequence == other.sequence &&
         one.description.empty() == other.description.empty();
}

std::string joined(const std::vector<int>& workers, const std::function<std::string(int)>& name_of) {
  std::string text;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (i > 0) text += i + 1 == workers.size() ? " and " : ", ";
    text += name_of(workers[i]);
  }
  return text;
}

}  // namespace

/// The thread, and what it knows.
class StallDetector::Watch {
 public:
  explicit Watch(Options given) : options_(std::move(given)), thread_([this] { watch(); }) {}
  ~Watch() {
    {
      MutexLock lock(mutex_);
      is_over_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  /// Returns false if the detector is over.
  bool pause(milliseconds time) {
    MutexLock lock(mutex_);
    const auto deadline = Clock::now() + time;
    while (!is_over_ && changed_.wait_until(mutex_, deadline)) continue;
    return !is_over_;
  }

  void watch() {
    try {
      while (pause(options_.period)) look_once();
    } catch (const std::exception&) {  // The store is gone; the heartbeat handles that.
    }
  }

  void look_once() {
    try {
      const CollectivePosition position = main_position(options_.positions());
      answer(position);
      if (position.description.empty()) return;
      look_for_the_end(position);
      report_stall(position);
    } catch (const c10::DistStoreError&) {  // The store is slow; the next look may have more luck.
    }
  }

  void answer(const CollectivePosition& position) {
    const int64_t asked = options_.store->add(kAskedKey, 0);
    if (asked <= answered_) return;
    answered_ = asked;
    options_.store->set(position_key(options_.rank), encode({asked, position}));
  }

  /// Fails if workers ended without the collective. Those that took part may have sent data still on its
  /// way.
  void look_for_the_end(const CollectivePosition& position) {
    if (options_.store->add(kNumEndedKey, 0) > static_cast<int64_t>(ended_.size())) read_ends();
    std::vector<int> without;
    for (const auto& [rank, completed] : ended_) {
      if (!position.concerns(rank)) continue;
      if (position.peer) {
        // A message that it sent before may still be on its way.
        const auto known_for = Clock::now() - ended_at_.at(rank);
        if (position.time > kLastMessage && known_for > kLastMessage) without.push_back(rank);
        continue;
      }
      const auto channel = static_cast<size_t>(position.channel);
      if (channel >= completed.size() || completed[channel] <= position.sequence) without.push_back(rank);
    }
    if (without.empty()) return;
    const auto error = std::make_exception_ptr(CollectiveMismatch(
        c10::str("[", position.op, "] collective #", position.sequence, ": ", options_.name_of(options_.rank),
                 " called ", position.description, ", but ", joined(without, options_.name_of),
                 " came to the end without it")));
    options_.fail(error);
  }

  void read_ends() {
    for (int rank = 0; rank < options_.size; ++rank) {
      if (rank == options_.rank || ended_.contains(rank) || !options_.store->check({ended_key(rank)}))
        continue;
      const auto bytes = options_.store->get(ended_key(rank));
      std::istringstream counts(std::string(bytes.begin(), bytes.end()));
      auto& completed = ended_[rank];
      ended_at_[rank] = Clock::now();
      for (uint64_t count = 0; counts >> count;) completed.push_back(count);
    }
  }

  void report_stall(const CollectivePosition& position) {
    if (!is_same_collective(reported_, position)) {
      reported_ = position;
      num_reports_ = 0;
    }
    if (position.time < options_.report_after * (int64_t{1} << std::min(num_reports_, 30))) return;
    ++num_reports_;
    const auto positions = ask(position);
    if (!pause(milliseconds(0))) return;  // the others may have had no time to answer
    // Only the lowest rank of those that wait there reports it.
    for (int rank = 0; rank < options_.rank; ++rank) {
      const auto& other = positions[static_cast<size_t>(rank)];
      if (other && is_same_collective(*other, position)) return;
    }
    options_.log(stall_report(position, positions, options_.name_of));
  }

  /// Each worker's position, or none if it has not answered.
  std::vector<std::optional<CollectivePosition>> ask(const CollectivePosition& own) {
    const int64_t question = options_.store->add(kAskedKey, 1);
    std::vector<std::optional<CollectivePosition>> positions(static_cast<size_t>(options_.size));
    positions[static_cast<size_t>(options_.rank)] = own;
    const auto deadline = Clock::now() + kPatience;
    while (true) {
      answer(own);  // Others may ask in the meantime.
      bool are_all_here = true;
      for (int rank = 0; rank < options_.size; ++rank) {
        auto& position = positions[static_cast<size_t>(rank)];
        if (!position && options_.store->check({position_key(rank)})) {
          const Answer heard = decode(options_.store->get(position_key(rank)));
          if (heard.question >= question) position = heard.position;
        }
        are_all_here = are_all_here && position.has_value();
      }
      if (are_all_here || Clock::now() > deadline || !pause(kAnswerPoll)) return positions;
    }
  }

  const Options options_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool is_over_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  // Used only by the thread.
  int64_t answered_ = 0;
  std::map<int, std::vector<uint64_t>> ended_;  // how many collectives each ended rank completed, by channel
  std::map<int, Clock::time_point> ended_at_;   // when that was read
  int num_reports_ = 0;
  CollectivePosition reported_;
  std::thread thread_;  // last, since it uses all other members
};

StallDetector::StallDetector(Options options) : watch_(std::make_unique<Watch>(std::move(options))) {}

StallDetector::~StallDetector() = default;

void StallDetector::tell_end(c10d::Store& store, int rank, const std::vector<uint64_t>& completed) {
  std::string counts;
  for (const uint64_t count : completed) counts += c10::str(count, ' ');
  store.set(ended_key(rank), std::vector<uint8_t>(counts.begin(), counts.end()));
  store.add(kNumEndedKey, 1);
}

std::string stall_report(const CollectivePosition& own,
                         const std::vector<std::optional<CollectivePosition>>& positions,
                         const std::function<std::string(int)>& name_of) {
  std::vector<int> waiting;
  std::vector<int> others;
  for (size_t rank = 0; rank < positions.size(); ++rank) {
    const bool is_there = positions[rank] && is_same_collective(*positions[rank], own);
    if (!is_there && !own.concerns(static_cast<int>(rank))) continue;
    (is_there ? waiting : others).push_back(static_cast<int>(rank));
  }
  const auto collective = [](const CollectivePosition& position) {
    return c10::str("collective #", position.sequence, " of ", position.op);
  };
  std::string text =
      c10::str("[stall] ", joined(waiting, name_of), waiting.size() == 1 ? " has" : " have", " waited for ",
               in_seconds(own.time), " in ", collective(own), " (", own.description, ")");
  if (others.empty()) return text + ", where all workers are: its messages do not come through";
  text += " for " + joined(others, name_of);
  for (const int rank : others) {
    const auto& position = positions[static_cast<size_t>(rank)];
    text += "; " + name_of(rank);
    if (!position) {
      text += " does not answer";
    } else if (position->description.empty()) {
      text += c10::str(" has been in no collective for ", in_seconds(position->time), ", its next one is ",
                       collective(*position));
    } else {
      text += c10::str(" has waited for ", in_seconds(position->time), " in ", collective(*position), " (",
                       position->description, ")");
    }
  }
  return text;
}

}  // namespace lockstep
