#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep {

/// Gives back the memory of a container that has grown beyond what most texts need.
template <typename Container>
void release_if_large(Container& container) {
  constexpr size_t kKeptBytes = size_t{1} << 20;
  if (container.capacity() * sizeof(typename Container::value_type) > kKeptBytes) Container().swap(container);
}

/// Keeps memory that functions need while they run, so that each call need not allocate it again. There are
/// as many scratches as there were calls at the same time. `Scratch::trim()` gives back the memory that only
/// unusual calls need. Thread-safe.
template <typename Scratch>
class ScratchPool {
 public:
  explicit ScratchPool(std::function<std::unique_ptr<Scratch>()> make) : make_(std::move(make)) {}

  /// A scratch that was taken. It goes back at the end of its life, which the pool must outlive.
  class Taken {
   public:
    Taken(ScratchPool& pool, std::unique_ptr<Scratch> scratch) : pool_(pool), scratch_(std::move(scratch)) {}
    ~Taken() {
      scratch_->trim();
      pool_.put_back(std::move(scratch_));
    }
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;

    Scratch& operator*() const { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

  Taken take() {
    std::unique_ptr<Scratch> scratch;
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        scratch = std::move(free_.back());
        free_.pop_back();
      }
      if (!scratch) ++num_made_;
      free_.reserve(num_made_);  // so that put_back() never throws
    }
    return {*this, scratch ? std::move(scratch) : make_()};
  }

 private:
  void put_back(std::unique_ptr<Scratch> scratch) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

  const std::function<std::unique_ptr<Scratch>()> make_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
  size_t num_made_ = 0;
};

}  // namespace lockstep
