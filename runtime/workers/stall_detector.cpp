#include "lockstep/runtime/workers/stall_detector.h"

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

/// State of the thread, which may outlive the detector if the store does not answer: its clients have no
/// timeout for that.
struct StallDetector::State {
  explicit State(Options given) : options(std::move(given)) {}

  const Options options;
  Mutex mutex;  // held while the options' functions are called
  ConditionVariable changed;
  bool is_over LOCKSTEP_GUARDED_BY(mutex) = false;

  // Used only by the thread.
  int64_t answered = 0;
  std::map<int, std::vector<uint64_t>> ended;  // how many collectives each ended rank completed, by channel
  std::map<int, Clock::time_point> ended_at;   // when that was read
  int num_reports = 0;
  CollectivePosition reported;

  /// Returns false if the detector is over.
  bool pause() {
    MutexLock lock(mutex);
    const auto deadline = Clock::now() + options.period;
    while (!is_over && changed.wait_until(mutex, deadline)) continue;
    return !is_over;
  }

  template <typename Act>
  bool call(const Act& act) {
    MutexLock lock(mutex);
    if (!is_over) act();
    return !is_over;
  }

  void watch() {
    try {
      while (pause()) {
        std::vector<CollectivePosition> positions;
        if (!call([&] { positions = options.positions(); })) return;
        const CollectivePosition position = main_position(positions);
        answer(position);
        if (position.description.empty()) continue;
        look_for_the_end(position);
        report_stall(position);
      }
    } catch (const std::exception&) {  // The store is gone; the heartbeat handles that.
    }
  }

  void answer(const CollectivePosition& position) {
    const int64_t asked = options.store->add(kAskedKey, 0);
    if (asked <= answered) return;
    answered = asked;
    options.store->set(position_key(options.rank), encode({asked, position}));
  }

  /// Fails if workers ended without the collective. Those that took part may have sent data still on its way.
  void look_for_the_end(const CollectivePosition& position) {
    if (options.store->add(kNumEndedKey, 0) > static_cast<int64_t>(ended.size())) read_ends();
    std::vector<int> without;
    for (const auto& [rank, completed] : ended) {
      if (position.peer) {
        // A message that it sent before may still be on its way.
        const auto known_for = Clock::now() - ended_at.at(rank);
        if (rank == *position.peer && position.time > kLastMessage && known_for > kLastMessage)
          without.push_back(rank);
        continue;
      }
      const auto channel = static_cast<size_t>(position.channel);
      if (channel >= completed.size() || completed[channel] <= position.sequence) without.push_back(rank);
    }
    if (without.empty()) return;
    const auto error = std::make_exception_ptr(
        CollectiveMismatch(c10::str("[", position.op, "] collective #", position.sequence, ": ",
                                    options.name_of(options.rank), " called ", position.description, ", but ",
                                    joined(without, options.name_of), " came to the end without it")));
    call([&] { options.fail(error); });
  }

  void read_ends() {
    for (int rank = 0; rank < options.size; ++rank) {
      if (rank == options.rank || ended.contains(rank) || !options.store->check({ended_key(rank)})) continue;
      const auto bytes = options.store->get(ended_key(rank));
      std::istringstream counts(std::string(bytes.begin(), bytes.end()));
      auto& completed = ended[rank];
      ended_at[rank] = Clock::now();
      for (uint64_t count = 0; counts >> count;) completed.push_back(count);
    }
  }

  void report_stall(const CollectivePosition& position) {
    if (!is_same_collective(reported, position)) {
      reported = position;
      num_reports = 0;
    }
    if (position.time < options.report_after * (int64_t{1} << std::min(num_reports, 30))) return;
    ++num_reports;
    const auto positions = ask(position);
    // Only the lowest rank of those that wait there reports it.
    for (int rank = 0; rank < options.rank; ++rank) {
      const auto& other = positions[static_cast<size_t>(rank)];
      if (other && is_same_collective(*other, position)) return;
    }
    call([&] { options.log(stall_report(position, positions, options.name_of)); });
  }

  /// Each worker's position, or none if it has not answered.
  std::vector<std::optional<CollectivePosition>> ask(const CollectivePosition& own) {
    const int64_t question = options.store->add(kAskedKey, 1);
    std::vector<std::optional<CollectivePosition>> positions(static_cast<size_t>(options.size));
    positions[static_cast<size_t>(options.rank)] = own;
    const auto deadline = Clock::now() + kPatience;
    while (true) {
      answer(own);  // Others may ask in the meantime.
      bool are_all_here = true;
      for (int rank = 0; rank < options.size; ++rank) {
        auto& position = positions[static_cast<size_t>(rank)];
        if (!position && options.store->check({position_key(rank)})) {
          const Answer heard = decode(options.store->get(position_key(rank)));
          if (heard.question >= question) position = heard.position;
        }
        are_all_here = are_all_here && position.has_value();
      }
      if (are_all_here || Clock::now() > deadline) return positions;
      std::this_thread::sleep_for(kAnswerPoll);
    }
  }
};

StallDetector::StallDetector(Options options) : state_(std::make_shared<State>(std::move(options))) {
  std::thread([state = state_] { state->watch(); }).detach();
}

StallDetector::~StallDetector() {
  MutexLock lock(state_->mutex);
  state_->is_over = true;
  state_->changed.notify_all();
}

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
    if (!is_there && own.peer && *own.peer != static_cast<int>(rank)) continue;
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
