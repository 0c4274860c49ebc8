#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::fake_gpu {

struct StreamName {
  int device = 0;
  int64_t id = 0;
  auto operator<=>(const StreamName&) const = default;
};

/// Amount of each stream's work that is known to be done, by the stream's number: vector clocks (Fidge,
/// Mattern, 1988).
using Clock = std::vector<uint64_t>;

/// The order of the work of all streams, and the accesses to memory that it leaves unordered. Thread-safe.
class StreamOrder {
 public:
  /// Memory [begin, begin + bytes).
  struct Range {
    const char* begin = nullptr;
    size_t bytes = 0;
  };

  /// Races name devices by this type and a number.
  explicit StreamOrder(std::string device_type = "gpu") : device_type_(std::move(device_type)) {}

  /// One piece of work on `stream`, which reads and writes these ranges. `what` names it in races.
  void launch(StreamName stream, const std::string& what, const std::vector<Range>& reads,
              const std::vector<Range>& writes);
  /// `stream`'s work up to now, for wait().
  Clock record(StreamName stream);
  /// Whatever `stream` is given from now on comes after `event`.
  void wait(StreamName stream, const Clock& event);
  /// The host has waited for `event` because of `what`: whatever it gives to any stream from now on comes
  /// after it.
  void wait_on_host(const Clock& event, const std::string& what);
  /// The host has learned that `event` is over, without a wait: likewise.
  void learn_on_host(const Clock& event);
  /// `show` has the host see what `stream` has done until now: it is called once the host knows that this is
  /// done, and by forget().
  void show_on_host(StreamName stream, std::function<void()> show);

  /// Memory that `stream`'s allocator gives, and takes back. Freed memory is taken again at the earliest by
  /// the next allocation of the same stream.
  void allocate(StreamName stream, Range block);
  void free(const char* begin);
  /// The same for memory that the allocator takes from nobody and gives nobody afterwards.
  void reserve(StreamName stream, Range block);
  void unreserve(const char* begin);
  /// The block with this start is used on `stream` too: freed, it is taken again after what that stream had
  /// to do by then.
  void use_on(const char* begin, StreamName stream);

  std::vector<std::string> races() const;
  /// Returns the reason of each of the host's waits.
  std::vector<std::string> host_waits() const;
  /// Starts over: all work so far is done.
  void forget();
  int used_streams(int device) const;

 private:
  struct Access {
    Range range;
    size_t stream = 0;
    uint64_t time = 0;
    bool is_write = false;
    std::string what;
  };
  struct Block {
    Range range;
    size_t stream = 0;
    std::vector<Access> accesses;
    std::vector<size_t> other_streams;
  };
  struct FreedBlock {
    Block block;
    Clock known;  // what the streams named by use_on() had to do
  };

  /// A stream, and its freed memory that no other allocation has taken.
  struct Stream {
    StreamName name;
    Clock clock;
    std::vector<FreedBlock> freed;
  };

  /// Work of a stream that the host does not know of yet.
  struct Unseen {
    size_t stream = 0;
    uint64_t time = 0;
    std::function<void()> show;
  };

  /// Calls `note`, which says what the host knows, and shows it what it has not seen of that.
  void know_on_host(const std::function<void()>& note);
  /// The stream's number, which it is given when it is first named.
  size_t number_of(StreamName stream);
  std::string text_of(size_t stream) const;
  Block* find_block(const char* address);
  void access(size_t stream, uint64_t time, const std::string& what, const Range& range, bool is_write);

  const std::string device_type_;
  std::mutex showing_mutex_;  // before the other; a thread that has waited finds what it waited for
  mutable std::mutex mutex_;
  std::map<StreamName, size_t> numbers_;
  std::vector<Stream> streams_;  // by number
  Clock host_;
  std::map<const char*, Block> blocks_;
  std::vector<std::string> races_;
  std::vector<std::string> host_waits_;
  std::vector<Unseen> unseen_;
};

}  // namespace lockstep::fake_gpu
