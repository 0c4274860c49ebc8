#include "lockstep/tests/gpu/stream_order.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep::fake_gpu {
namespace {

void join(Clock& clock, const Clock& other) {
  for (const auto& [stream, time] : other) clock[stream] = std::max(clock[stream], time);
}

std::string text_of(StreamName stream) {
  return "stream " + std::to_string(stream.id) + " of gpu:" + std::to_string(stream.device);
}

bool overlap(const StreamOrder::Range& a, const StreamOrder::Range& b) {
  return a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

bool covers(const StreamOrder::Range& outer, const StreamOrder::Range& inner) {
  return outer.begin <= inner.begin && inner.begin + inner.bytes <= outer.begin + outer.bytes;
}

}  // namespace

void StreamOrder::launch(StreamName stream, const std::string& what, const std::vector<Range>& reads,
                         const std::vector<Range>& writes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Clock& clock = clocks_[stream];
  join(clock, host_);
  const uint64_t time = ++clock[stream];
  for (const auto& range : reads) access(stream, time, what, range, /*is_write=*/false);
  for (const auto& range : writes) access(stream, time, what, range, /*is_write=*/true);
}

Clock StreamOrder::record(StreamName stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Clock& clock = clocks_[stream];
  join(clock, host_);
  return clock;
}

void StreamOrder::wait(StreamName stream, const Clock& event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  join(clocks_[stream], event);
}

void StreamOrder::wait_on_host(const Clock& event, const std::string& what) {
  know_on_host([&] {
    host_waits_.push_back(what);
    join(host_, event);
  });
}

void StreamOrder::learn_on_host(const Clock& event) {
  know_on_host([&] { join(host_, event); });
}

void StreamOrder::show_on_host(StreamName stream, std::function<void()> show) {
  const std::lock_guard<std::mutex> lock(mutex_);
  unseen_.push_back({stream, clocks_[stream][stream], std::move(show)});
}

void StreamOrder::know_on_host(const std::function<void()>& note) {
  const std::lock_guard<std::mutex> showing(showing_mutex_);
  std::vector<Unseen> known;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    note();
    const auto first = std::stable_partition(unseen_.begin(), unseen_.end(), [&](const Unseen& unseen) {
      const auto time = host_.find(unseen.stream);
      return time == host_.end() || time->second < unseen.time;
    });
    known.assign(std::make_move_iterator(first), std::make_move_iterator(unseen_.end()));
    unseen_.erase(first, unseen_.end());
  }
  for (const auto& unseen : known) unseen.show();  // frees memory, which calls this StreamOrder again
}

void StreamOrder::allocate(StreamName stream, Range block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Clock& clock = clocks_[stream];
  for (const auto& freed : freed_[stream]) {
    for (const auto& access : freed.block.accesses) {
      if (is_before(access, clock) || is_before(access, freed.known) || is_before(access, host_)) continue;
      races_.push_back("memory that " + access.what + " uses on " + text_of(access.stream) +
                       " was freed and is taken again on " + text_of(stream));
    }
  }
  freed_[stream].clear();
  blocks_[block.begin] = {block, stream, {}, {}};
}

void StreamOrder::free(const char* begin) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(begin);
  if (found == blocks_.end()) return;
  FreedBlock freed{std::move(found->second), {}};
  blocks_.erase(found);
  for (const auto& stream : freed.block.other_streams) join(freed.known, clocks_[stream]);
  freed_[freed.block.stream].push_back(std::move(freed));
}

void StreamOrder::reserve(StreamName stream, Range block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  blocks_[block.begin] = {block, stream, {}, {}};
}

void StreamOrder::unreserve(const char* begin) {
  const std::lock_guard<std::mutex> lock(mutex_);
  blocks_.erase(begin);
}

void StreamOrder::use_on(const char* begin, StreamName stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Block* block = find_block(begin)) block->other_streams.push_back(stream);
}

std::vector<std::string> StreamOrder::races() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return races_;
}

std::vector<std::string> StreamOrder::host_waits() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return host_waits_;
}

void StreamOrder::forget() {
  know_on_host([&] {
    races_.clear();
    host_waits_.clear();
    freed_.clear();
    for (const auto& [stream, clock] : clocks_) join(host_, clock);
  });
}

int StreamOrder::used_streams(int device) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(std::count_if(clocks_.begin(), clocks_.end(), [&](const auto& entry) {
    const auto own = entry.second.find(entry.first);
    return entry.first.device == device && own != entry.second.end() && own->second > 0;
  }));
}

bool StreamOrder::is_before(const Access& access, const Clock& clock) const {
  const auto known = clock.find(access.stream);
  return known != clock.end() && known->second >= access.time;
}

StreamOrder::Block* StreamOrder::find_block(const char* address) {
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return nullptr;
  Block& block = std::prev(next)->second;
  return address < block.range.begin + block.range.bytes ? &block : nullptr;
}

void StreamOrder::access(StreamName stream, uint64_t time, const std::string& what, const Range& range,
                         bool is_write) {
  if (range.bytes == 0) return;
  Block* block = find_block(range.begin);
  if (block == nullptr) return;
  const Clock& clock = clocks_[stream];
  auto& accesses = block->accesses;
  for (const auto& earlier : accesses) {
    if (!(is_write || earlier.is_write) || !overlap(earlier.range, range) || is_before(earlier, clock))
      continue;
    races_.push_back(what + (is_write ? " writes" : " reads") + " on " + text_of(stream) + " what " +
                     earlier.what + (earlier.is_write ? " writes" : " reads") + " on " +
                     text_of(earlier.stream));
  }
  // An earlier access that this one follows and covers can reveal nothing that this one does not.
  std::erase_if(accesses, [&](const Access& earlier) {
    return covers(range, earlier.range) && is_before(earlier, clock) && (is_write || !earlier.is_write);
  });
  accesses.push_back({range, stream, time, is_write, what});
}

}  // namespace lockstep::fake_gpu
