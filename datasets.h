/// Data sets in torch::data's style: images, click logs and tensors.
#pragma once

#include "lockstep/datasets/clicks/click_batch.h"
#include "lockstep/datasets/clicks/click_file.h"
#include "lockstep/datasets/clicks/click_file_options.h"
#include "lockstep/datasets/clicks/click_files.h"
#include "lockstep/datasets/clicks/click_row.h"
#include "lockstep/datasets/clicks/generated_clicks.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/images/generated_digits.h"
#include "lockstep/datasets/images/ignored_files.h"
#include "lockstep/datasets/images/image_cache.h"
#include "lockstep/datasets/images/image_folder.h"
#include "lockstep/datasets/images/image_transform.h"
#include "lockstep/datasets/images/mnist.h"
#include "lockstep/datasets/tensors/collated_dataset.h"
#include "lockstep/datasets/tensors/tensor_dataset.h"
