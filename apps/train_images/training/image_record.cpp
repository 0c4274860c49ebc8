#include "lockstep/apps/train_images/training/image_record.h"

#include <c10/util/StringUtil.h>

#include "lockstep/apps/shared/run_recording.h"
#include "lockstep/apps/train_images/options/train_settings.h"
#include "lockstep/runtime/base/files/output_file.h"

namespace lockstep::apps {

std::shared_ptr<RecordRun> make_record(const RunPaths& paths, const ResolvedRun& run,
                                       const std::map<std::string, Origin>& origins, const ImageData& data,
                                       const std::vector<std::string>& hosts,
                                       std::chrono::steady_clock::time_point began) {
  RecordRunOptions options{.title = record_title("train_images", model_name(run.options.model), run.replicas),
                           .log_every = run.options.log_every,
                           .hosts = hosts,
                           .began = began};
  add_settings(settings_of(run.options, origins), options);
  if (!run.skipped.empty())
    replace_file(paths.folder + "/" + kSkippedImagesFile, c10::Join("\n", run.skipped) + "\n");
  for (int64_t i = 0; i < run.num_classes; ++i) options.class_names.push_back(class_name(data, i));
  return std::make_shared<RecordRun>(paths, options);
}

}  // namespace lockstep::apps
