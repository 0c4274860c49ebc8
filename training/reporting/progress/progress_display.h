#pragma once

#include <functional>
#include <iosfwd>

#include "lockstep/training/reporting/progress/progress_bar.h"

namespace lockstep {

struct DisplayOptions {
  bool is_silent = false;  ///< shows nothing
  bool bar = false;        ///< a bar that is drawn over and over; else a line now and then
  bool unicode = false;
  bool color = false;
  std::function<int()> width = [] { return 80; };  ///< columns, asked for at every drawing
  std::function<double()> clock;                   ///< seconds; empty: the steady clock
};

/// What this process's standard error can show: a bar on a terminal, in colour unless NO_COLOR is set, with
/// block characters where the locale is UTF-8.
DisplayOptions display_of_stderr();

/// Shows how far the training is. Used by one thread at a time.
class ProgressDisplay {
 public:
  static constexpr double kBarSeconds = 0.2;
  static constexpr double kLineSeconds = 30;

  /// `out` outlives the display.
  ProgressDisplay(std::ostream& out, DisplayOptions options);
  ~ProgressDisplay() { clear(); }
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  /// Whether it is time to show() again; cheap enough to be asked at every step. Collecting what is shown may
  /// have to wait for a device, so ask first.
  bool is_due() const;
  void show(const Progress& progress);
  /// Takes the bar away, so that something else can be printed, and waits anew for the next one.
  void clear();

 private:
  std::ostream& out_;
  DisplayOptions options_;
  double last_;
  bool is_drawn_ = false;
};

}  // namespace lockstep
