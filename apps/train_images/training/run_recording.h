#pragma once

#include <map>
#include <memory>
#include <string>

#include "lockstep/apps/shared/command_line/origin.h"
#include "lockstep/apps/train_images/data/image_data.h"
#include "lockstep/apps/train_images/options/configuration.h"
#include "lockstep/training/callbacks/record_run.h"
#include "lockstep/training/reporting/records/run_record.h"
#include "lockstep/training/trainer/fit_loop.h"

namespace lockstep::apps {

/// Returns the folder to record in. A training that resumes from a backup gets a new folder, such as
/// runs/a-2, next to the one of its earlier start.
std::string record_folder(const TrainOptions& options);

/// Creates the recorder of a run in `paths`, with the run's title, configuration and classes. Lists the
/// images that were left out in a file of their own, if there are any.
std::shared_ptr<RecordRun> make_record(const RunPaths& paths, const ResolvedRun& run,
                                       const std::map<std::string, Origin>& origins, const ImageData& data);

/// Ends the record of a training that ended without an error. A nonzero `signal` means that it stopped the
/// training. Does nothing if `record` is null.
void finish_record(RecordRun* record, const History& history, int signal);

/// Ends the record of a training that an error ended. Logs a failure to do so instead of throwing, because
/// the caller still has to report the training's error. Does nothing if `record` is null.
void fail_record(RecordRun* record, RunStatus status, const std::string& reason);

}  // namespace lockstep::apps
