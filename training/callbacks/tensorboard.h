#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/training/callbacks/fit_records.h"
#include "lockstep/training/reporting/tensorboard/event_file.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

struct TensorBoardOptions {
  std::string folder;                             ///< `tensorboard --logdir` takes it, or one above it
  std::vector<Hyperparameter> hyperparameters{};  ///< of the HPARAMS tab
  int64_t log_every = 10;                         ///< steps between two that are written
  bool histograms = true;                         ///< of every parameter, after each epoch
};

/// Writes a fit for TensorBoard: the logs of every epoch, those of the validation beside those of the
/// training, some steps, histograms of the parameters, and the run's row among the hyperparameters. Of
/// several workers worker 0 alone does. Throws std::system_error naming a file that cannot be written.
class TensorBoard : public Callback {
 public:
  /// Throws InvalidArgument without a folder, and for a log_every below 1.
  explicit TensorBoard(const TensorBoardOptions& options);

  void on_fit_begin(FitState& state) override;
  void on_epoch_begin(FitState& state) override;
  void on_step_end(FitState& state) override;
  void on_epoch_end(FitState& state) override;
  /// Ends the session, unless end_session() has.
  void on_fit_end(FitState& state) override;

  /// Writes a step that somebody else has recorded; on_step_end() makes records of its own.
  void add_step(const StepRecord& step);
  /// A whole PNG file beside what the validation came to.
  void add_validation_image(const std::string& tag, const std::vector<uint8_t>& png, int64_t step);
  /// Says in the HPARAMS tab how the run has ended. Once.
  void end_session(SessionStatus status);
  /// Leaves the end of the session to the caller of end_session().
  void keep_session() { ends_session_ = false; }

 private:
  void write_histograms(const FitState& state);

  TensorBoardOptions options_;
  StepRecorder steps_;
  std::optional<EventFileWriter> training_;
  std::optional<EventFileWriter> validation_;
  bool ends_session_ = true;
};

}  // namespace lockstep
