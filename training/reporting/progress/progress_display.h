#pragma once

#include <functional>
#include <iosfwd>

#include "lockstep/training/reporting/progress/progress_bar.h"

namespace lockstep {

struct DisplayOptions {
  bool is_silent = false;  ///< shows nothing
  bool bar = false;        ///< a bar that is redrawn in place; else an occasional line
  bool unicode = false;
  bool color = false;
  std::function<int()> width = [] { return 80; };  ///< columns; called at every drawing
  std::function<double()> clock;                   ///< seconds; empty: the steady clock
};

/// Returns the options that suit this process's standard error: a bar on a terminal, in color unless NO_COLOR
/// is set, with block characters if the locale is UTF-8.
DisplayOptions display_of_stderr();

/// Shows the progress of training. Not thread-safe.
///
/// Example:
///
///     ProgressDisplay display(std::cerr, display_of_stderr());
///     if (display.is_due()) display.show({.label = "epoch 1/5", .step = 347, .steps = 938, .seconds = 31});
class ProgressDisplay {
 public:
  static constexpr double kBarSeconds = 0.2;
  static constexpr double kLineSeconds = 30;

  /// `out` must outlive the display.
  ProgressDisplay(std::ostream& out, DisplayOptions options);
  ~ProgressDisplay() { clear(); }
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  /// Returns whether it is time to call show() again. Cheap enough to call at every step. Ask before you
  /// collect the values to show, which may wait for a device.
  bool is_due() const;
  void show(const Progress& progress);
  /// Removes the bar so that you can print something else, and restarts the wait for the next drawing.
  void clear();

 private:
  std::ostream& out_;
  DisplayOptions options_;
  double last_;
  bool is_drawn_ = false;
};

}  // namespace lockstep
