#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <string>
#include <utility>

namespace lockstep {

/// Base of backends whose collectives can be told apart by more than their operation, dtype and shapes; see
/// CollectiveLabel.
///
/// Example:
///
///     if (auto* labelled = dynamic_cast<LabelsCollectives*>(backend.get())) labelled->set_label(" of stage
///     2");
class LabelsCollectives {
 public:
  virtual ~LabelsCollectives() = default;
  /// Adds `label` to the description of the rank's collectives from now on. Ranks whose descriptions differ
  /// get a CollectiveMismatch. Call it from the rank's thread.
  void set_label(std::string label) { label_ = std::move(label); }
  const std::string& label() const { return label_; }

 private:
  std::string label_;
};

/// Labels a rank's collectives as long as it lives.
///
/// Example:
///
///     const CollectiveLabel label(backend.get(), " of unit 'blocks.3'");
///     backend->_allgather_base(whole, part);  // matches only the same unit's
class CollectiveLabel {
 public:
  /// `backend` may be null, or one without labels.
  CollectiveLabel(c10d::Backend* backend, std::string label)
      : labelled_(dynamic_cast<LabelsCollectives*>(backend)) {
    if (labelled_ != nullptr) labelled_->set_label(std::move(label));
  }
  ~CollectiveLabel() {
    if (labelled_ != nullptr) labelled_->set_label({});
  }
  CollectiveLabel(const CollectiveLabel&) = delete;
  CollectiveLabel& operator=(const CollectiveLabel&) = delete;

 private:
  LabelsCollectives* const labelled_;
};

}  // namespace lockstep
