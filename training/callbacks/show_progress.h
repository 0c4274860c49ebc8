#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/training/reporting/progress/fit_text.h"
#include "lockstep/training/reporting/progress/progress_display.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

struct ShowProgressOptions {
  FitTextOptions text{};
  /// Names of the values that the bar shows; empty: all.
  std::vector<std::string> bar_names{};
  /// Adds values to those that the bar shows. Called on worker 0 only, when the bar is drawn.
  std::function<void(const FitState&, Logs&)> add_values{};
  /// Prints a table of all epochs at the end, including those before the fit was resumed.
  bool table = true;
  /// Prints a line at the end if the fit was interrupted, as by StopOnSignal.
  bool interruption = true;
};

/// Shows the progress of a fit: a bar on standard error if that is a terminal, otherwise an occasional line
/// there; a line on standard output after every epoch; and at the end a table, and the reason if a callback
/// such as EarlyStopping or StopOnSignal has stopped the fit. Only worker 0 prints.
///
/// Example:
///
///     trainer.fit(batches, {.epochs = 5, .callbacks = {std::make_shared<ShowProgress>()}});
class ShowProgress : public Callback {
 public:
  explicit ShowProgress(const ShowProgressOptions& options = {});
  /// `bar` and `lines` must outlive this object.
  ShowProgress(std::ostream& bar, std::ostream& lines, DisplayOptions display,
               const ShowProgressOptions& options = {});

  void on_fit_begin(FitState& state) override;
  void on_step_end(FitState& state) override;
  void on_test_begin(FitState& state) override;
  void on_test_step_end(FitState& state) override;
  void on_epoch_end(FitState& state) override;
  void on_fit_end(FitState& state) override;

  /// Removes the bar so that you can print something else.
  void clear() { display_.clear(); }

 private:
  Logs shown_values(const FitState& state) const;

  std::ostream& lines_;
  ShowProgressOptions options_;
  ProgressDisplay display_;
  bool has_trained_ = false;      // in this fit and process
  bool has_ended_epoch_ = false;  // likewise
  double test_began_ = 0;
};

}  // namespace lockstep
