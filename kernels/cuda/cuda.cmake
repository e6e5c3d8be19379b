# The CUDA backend: machine code for exactly the architectures that are checked
# (sm_90a, sm_120a) and no PTX, so that no driver compiles it for another chip.
# WITH_CUDA=AUTO builds it where a GPU can be used: nvcc and a driver are there.
set(BATON_CUDA OFF)
file(GLOB cuda_srcs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
if(WITH_CUDA STREQUAL "OFF" OR NOT cuda_srcs OR NOT TARGET baton_kernels)
  return()
endif()
if(WITH_CUDA STREQUAL "AUTO" AND NOT EXISTS /dev/nvidiactl)
  message(STATUS "CUDA: no driver, the CUDA backend is not built (WITH_CUDA=ON builds it)")
  return()
endif()
find_program(BATON_NVCC nvcc HINTS /usr/local/cuda/bin)
if(NOT BATON_NVCC)
  if(WITH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "WITH_CUDA=ON, but nvcc was not found on PATH or in /usr/local/cuda/bin")
  endif()
  message(STATUS "CUDA: no nvcc, the CUDA backend is not built")
  return()
endif()
set(CMAKE_CUDA_COMPILER ${BATON_NVCC})
set(CMAKE_CUDA_ARCHITECTURES "90a-real;120a-real" CACHE STRING "CUDA architectures")
enable_language(CUDA)
find_package(CUDAToolkit 13 REQUIRED)
set(BATON_CUDA ON)
set(CMAKE_CUDA_STANDARD 20)
add_library(baton_cuda STATIC ${cuda_srcs})
target_compile_options(baton_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-O3 -lineinfo --compress-mode=size --Werror=all-warnings -Xptxas=-v>)
target_link_libraries(baton_cuda PUBLIC baton_flags baton_base CUDA::cudart_static CUDA::cublasLt)
target_compile_definitions(baton_kernels PUBLIC BATON_HAVE_CUDA=1)
target_link_libraries(baton_kernels PUBLIC baton_cuda)
# Their tables and names; the two libraries need each other.
target_link_libraries(baton_cuda PRIVATE baton_kernels)
# Made before the language was known, and it has no CUDA source.
set_target_properties(baton_kernels PROPERTIES CUDA_ARCHITECTURES OFF)

# Every op against the CPU's plain kernels; run on a machine with a GPU
# (tests/device/*.sh).
file(GLOB op_test_srcs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/device/op_*.c)
if(op_test_srcs)
  add_executable(op_test ${op_test_srcs})
  target_link_libraries(op_test PRIVATE baton_kernels)
  set_target_properties(op_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endif()
add_executable(backend_test ${CMAKE_SOURCE_DIR}/tests/device/backend_test.c)
target_link_libraries(backend_test PRIVATE baton_kernels)
set_target_properties(backend_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
# The registry among kernels that are wrong on purpose.
add_executable(wrong_test ${CMAKE_SOURCE_DIR}/tests/device/wrong_test.c
  ${CMAKE_SOURCE_DIR}/tests/device/wrong_kernels.cu)
target_compile_options(wrong_test PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-O3 --Werror=all-warnings>)
target_link_libraries(wrong_test PRIVATE baton_kernels)
set_target_properties(wrong_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

# A trace of every kernel of a process that it is preloaded into (tests/device/trace.c).
find_path(BATON_CUPTI cupti.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(BATON_CUPTI)
  add_library(kernel_trace MODULE ${CMAKE_SOURCE_DIR}/tests/device/trace.c)
  target_include_directories(kernel_trace SYSTEM PRIVATE ${BATON_CUPTI} ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(kernel_trace PRIVATE baton_flags ${CMAKE_DL_LIBS})
  set_target_properties(kernel_trace PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endif()

# Times of the same ops beside what the device could do at best.
file(GLOB op_bench_srcs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/bench/op_*.c
  ${CMAKE_SOURCE_DIR}/tests/bench/op_*.cu)
if(op_bench_srcs)
  add_executable(op_bench ${op_bench_srcs} ${CMAKE_SOURCE_DIR}/tests/device/op_shapes.c)
  target_compile_options(op_bench PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-O3 -lineinfo --compress-mode=size --Werror=all-warnings>)
  target_link_libraries(op_bench PRIVATE baton_kernels)
  set_target_properties(op_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endif()
