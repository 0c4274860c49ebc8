#include "lockstep/datasets/stores/internal/open_file_pool.h"

#include <algorithm>
#include <utility>

namespace lockstep {

OpenFilePool::File OpenFilePool::used(File file) {
  File oldest;  // closed without the lock
  const std::scoped_lock lock(mutex_);
  if (const auto found = std::find(files_.begin(), files_.end(), file); found != files_.end()) {
    files_.splice(files_.begin(), files_, found);
    return file;
  }
  files_.push_front(file);
  if (files_.size() > most_) {
    oldest = std::move(files_.back());
    files_.pop_back();
  }
  return file;
}

void OpenFilePool::drop(const File& file) {
  const std::scoped_lock lock(mutex_);
  files_.remove(file);
}

size_t OpenFilePool::size() const {
  const std::scoped_lock lock(mutex_);
  return files_.size();
}

}  // namespace lockstep
