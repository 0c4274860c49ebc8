#include "lockstep/datasets/parquet/internal/row_group_cache.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace lockstep {

namespace {

constexpr int64_t kMostLanes = 16;
constexpr int64_t kMostOpenBytes = int64_t{1} << 28;

RowGroupCache::Rows places_of(const RowGroupCache::Rows& order) {
  RowGroupCache::Rows places(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) places[order[i]] = i;
  return places;
}

}  // namespace

RowGroupCache::RowGroupCache(std::vector<Group> groups, int64_t limit, Decode decode, int threads)
    : groups_(std::move(groups)),
      limit_(limit),
      decode_(std::move(decode)),
      threads_(static_cast<size_t>(threads)) {}

RowGroupCache::~RowGroupCache() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : ahead_) thread.join();
}

/// Returns whether others were used so often since that nobody can be in the midst of this one. Processes
/// that need only a part of a row group's rows never use all of them.
bool RowGroupCache::is_stale(const Entry& entry) const {
  return entry.last_use + 4 * (entries_.size() + 1) < uses_;
}

/// Gives up row groups until `bytes` more fit. Returns false if they do not.
bool RowGroupCache::make_room(int64_t bytes, bool only_finished) {
  while (bytes_ + bytes > limit_) {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      const Entry& entry = it->second;
      if (!entry.decoded || entry.decoded.use_count() > 1) continue;  // a caller holds it
      if (only_finished && entry.rows_left > 0 && !is_stale(entry)) continue;
      const auto rank = [](const Entry& of) {
        return std::tuple(of.rows_left > 0, !of.is_at_end, of.last_use);
      };
      if (oldest == entries_.end() || rank(entry) < rank(oldest->second)) oldest = it;
    }
    if (oldest == entries_.end()) return false;
    bytes_ -= groups_[oldest->first].bytes;
    entries_.erase(oldest);
  }
  return true;
}

/// Decodes a row group for which there is room, without the lock.
void RowGroupCache::decode(size_t group, const OrderWithin& order_within,
                           std::unique_lock<std::mutex>& lock) {
  Entry& entry = entries_[group];  // stays where it is while others come and go
  entry.rows_left = groups_[group].rows;
  entry.last_use = ++uses_;
  bytes_ += groups_[group].bytes;
  peak_bytes_ = std::max(peak_bytes_, bytes_);
  ++num_decoded_;
  lock.unlock();
  std::shared_ptr<RowGroup> decoded;
  try {
    decoded = std::make_shared<RowGroup>();
    auto order = order_within ? order_within(group) : nullptr;
    // A part of a row group's rows, as at the end of the rows to train on, has no order of all of them.
    if (order && static_cast<int64_t>(order->size()) != groups_[group].rows) order = nullptr;
    static const Rows kTheirOwn;
    decoded->columns = decode_(group, order ? *order : kTheirOwn);
    if (order) decoded->places = places_of(*order);  // a permutation, as decode_ has not thrown
  } catch (...) {
    lock.lock();
    entries_.erase(group);
    bytes_ -= groups_[group].bytes;
    changed_.notify_all();
    throw;
  }
  lock.lock();
  entry.decoded = std::move(decoded);
  changed_.notify_all();
}

std::shared_ptr<const RowGroupCache::RowGroup> RowGroupCache::get(size_t group, int64_t rows) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    const auto found = entries_.find(group);
    if (found == entries_.end()) {
      if (make_room(groups_[group].bytes, /*only_finished=*/false)) {
        OrderWithin order_within;
        const auto wanted = wanted_group(group);
        if (wanted != wanted_.end()) {
          order_within = std::move(wanted->order_within);
          wanted_.erase(wanted);
        }
        decode(group, order_within, lock);
        continue;
      }
    } else if (Entry& entry = found->second; entry.decoded) {
      if (entry.rows_left <= 0) entry.rows_left = groups_[group].rows;  // the next epoch
      entry.is_at_end = false;
      entry.rows_left -= rows;
      entry.last_use = ++uses_;
      // The deleter tells those who wait for room: letting go of it changes nothing that they could see else.
      return {entry.decoded.get(), [this, held = entry.decoded](const RowGroup*) mutable {
                held.reset();
                const std::lock_guard<std::mutex> letting_go(mutex_);
                changed_.notify_all();
              }};
    }
    changed_.wait(lock);
  }
}

void RowGroupCache::note_end(size_t group) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = entries_.find(group); found != entries_.end()) found->second.is_at_end = true;
}

std::deque<RowGroupCache::Wanted>::iterator RowGroupCache::wanted_group(size_t group) {
  return std::find_if(wanted_.begin(), wanted_.end(),
                      [group](const Wanted& wanted) { return wanted.group == group; });
}

void RowGroupCache::prefetch(const std::vector<size_t>& groups, const OrderWithin& order_within) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bool is_new = false;
  for (const size_t group : groups) {
    // One that was decoded ahead is still needed, so that others may not take its place.
    if (const auto found = entries_.find(group); found != entries_.end()) {
      found->second.last_use = ++uses_;
      continue;
    }
    if (wanted_group(group) != wanted_.end()) continue;
    wanted_.push_back({.group = group, .order_within = order_within});
    is_new = true;
  }
  if (!is_new) return;
  while (ahead_.size() < std::min(threads_, wanted_.size())) ahead_.emplace_back([this] { work_ahead(); });
  changed_.notify_all();
}

void RowGroupCache::work_ahead() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!is_ending_) {
    const auto next = wanted_.begin();
    if (next == wanted_.end()) {
      changed_.wait(lock);
    } else if (entries_.count(next->group)) {
      wanted_.erase(next);
    } else if (make_room(groups_[next->group].bytes, /*only_finished=*/true)) {
      const Wanted wanted = std::move(*next);
      wanted_.erase(next);
      try {
        decode(wanted.group, wanted.order_within, lock);
      } catch (const std::exception&) {
        // get() decodes it again, and throws.
      }
    } else {
      changed_.wait(lock);
    }
  }
}

int64_t RowGroupCache::peak_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return peak_bytes_;
}

int64_t RowGroupCache::num_decoded() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_decoded_;
}

size_t max_open_row_groups(int64_t limit, int64_t largest) {
  const int64_t open_bytes = std::min(limit / 2, kMostOpenBytes);
  return static_cast<size_t>(std::clamp(open_bytes / std::max<int64_t>(largest, 1), int64_t{1}, kMostLanes));
}

}  // namespace lockstep
