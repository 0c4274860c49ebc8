#pragma once

#include <ostream>

#include "lockstep/training/reporting/progress/fit_text.h"
#include "lockstep/training/reporting/progress/progress_display.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

struct ShowProgressOptions {
  FitTextOptions text{};
  /// Which of the values so far the bar shows; empty: all.
  std::vector<std::string> bar_names{};
  /// A table of all epochs at the end.
  bool table = true;
};

/// Shows how far a fit is: a bar on standard error where that is a terminal, a line on it now and then where
/// it is none, a line on standard output after every epoch, and a table at the end. Of several workers worker
/// 0 alone does.
class ShowProgress : public Callback {
 public:
  explicit ShowProgress(const ShowProgressOptions& options = {});
  /// `bar` and `lines` outlive it.
  ShowProgress(std::ostream& bar, std::ostream& lines, DisplayOptions display,
               const ShowProgressOptions& options = {});

  void on_fit_begin(FitState& state) override;
  void on_step_end(FitState& state) override;
  void on_test_begin(FitState& state) override;
  void on_test_step_end(FitState& state) override;
  void on_epoch_end(FitState& state) override;
  void on_fit_end(FitState& state) override;

  /// Takes the bar away, so that something else can be printed.
  void clear() { display_.clear(); }

 private:
  Logs shown_values(const FitState& state) const;

  std::ostream& lines_;
  ShowProgressOptions options_;
  ProgressDisplay display_;
  std::vector<Logs> epochs_;
  int64_t first_epoch_ = 1;
  double test_began_ = 0;
};

}  // namespace lockstep
