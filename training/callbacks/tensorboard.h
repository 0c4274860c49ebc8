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
  std::string folder;  ///< pass it, or a folder above it, to `tensorboard --logdir`
  std::vector<Hyperparameter> hyperparameters{};  ///< shown in the HPARAMS tab
  int64_t log_every = 10;                         ///< writes every `log_every`-th step
  bool histograms = true;                         ///< writes a histogram of every parameter after each epoch
};

/// Writes a fit for TensorBoard: the logs of every epoch, with training and validation as two runs, the logs
/// of some steps, histograms of the parameters, and the run's row in the HPARAMS tab. Only worker 0 writes.
/// Throws std::system_error naming a file that cannot be written.
///
/// Example:
///
///     auto tensorboard = std::make_shared<TensorBoard>(TensorBoardOptions{.folder = "tb"});
///     trainer.fit(batches, {.epochs = 5, .callbacks = {tensorboard}});
class TensorBoard : public Callback {
 public:
  /// Throws InvalidArgument if the folder is empty or log_every is below 1.
  explicit TensorBoard(const TensorBoardOptions& options);

  void on_fit_begin(FitState& state) override;
  void on_epoch_begin(FitState& state) override;
  void on_step_end(FitState& state) override;
  void on_epoch_end(FitState& state) override;
  /// Ends the session as a success, unless keep_session() was called.
  void on_fit_end(FitState& state) override;

  /// Writes the loss, speed and learning rate of a step that the caller has recorded, each if it is set.
  /// (on_step_end() records steps on its own.)
  void add_step(const StepRecord& step);
  /// Writes an image to the validation run. `png` is a whole PNG file.
  void add_validation_image(const std::string& tag, const std::vector<uint8_t>& png, int64_t step);
  /// Writes to the HPARAMS tab how the run ended. Call it once.
  void end_session(SessionStatus status);
  /// Makes on_fit_end() leave the session open; you then call end_session().
  void keep_session() { ends_session_ = false; }

 private:
  void begin_session(const FitState& state);
  void write_histograms(const FitState& state);

  TensorBoardOptions options_;
  StepRecorder steps_;
  std::optional<EventFileWriter> training_;
  std::optional<EventFileWriter> validation_;
  bool ends_session_ = true;
};

}  // namespace lockstep
