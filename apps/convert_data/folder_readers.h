#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/datasets/images/internal/class_folder.h"

namespace lockstep::apps {

/// Readers of one class folder, which open its archive once for each thread. Thread-safe.
class FolderReaders {
 public:
  /// `folder` must outlive this object.
  explicit FolderReaders(const ClassFolder& folder) : folder_(folder) {}

  /// Calls `use` with a reader that nobody else uses meanwhile.
  template <typename Use>
  void with_reader(const Use& use) {
    std::unique_ptr<ClassFolderReader> reader;
    {
      const std::scoped_lock lock(mutex_);
      if (!idle_.empty()) {
        reader = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (reader == nullptr) reader = std::make_unique<ClassFolderReader>(folder_);
    use(*reader);
    const std::scoped_lock lock(mutex_);
    idle_.push_back(std::move(reader));
  }

 private:
  const ClassFolder& folder_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ClassFolderReader>> idle_;
};

}  // namespace lockstep::apps
