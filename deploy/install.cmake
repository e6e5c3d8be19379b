# What `cmake --install` puts where, run at that time: PREFIX/bin the programs, PREFIX/lib/baton
# the launcher with its package, PREFIX/share/baton the demo model, the cluster file and the
# unit with the paths that they have there. ETC is /etc for the prefix /usr, else PREFIX/etc.
# SOURCE: set by CMakeLists.txt. file(INSTALL) puts DESTDIR in front by itself, nothing else does.
set(prefix "${CMAKE_INSTALL_PREFIX}")
set(root "$ENV{DESTDIR}${prefix}")
if(prefix STREQUAL "/usr")
  set(etc /etc)
  set(run /run/baton)
  set(logs /var/log/baton)
else()
  set(etc "${prefix}/etc")
  set(run "${prefix}/run")
  set(logs "${prefix}/log")
endif()

file(INSTALL "${SOURCE}/deploy/baton" DESTINATION "${prefix}/lib/baton/deploy" USE_SOURCE_PERMISSIONS)
file(INSTALL "${SOURCE}/deploy/launcher" DESTINATION "${prefix}/lib/baton/deploy" FILES_MATCHING PATTERN "*.py")
file(WRITE "${root}/lib/baton/etc" "${etc}\n")
file(MAKE_DIRECTORY "${root}/bin")
file(CREATE_LINK "../lib/baton/deploy/baton" "${root}/bin/baton" SYMBOLIC)
file(INSTALL "${SOURCE}/deploy/demo-model" DESTINATION "${prefix}/share/baton")
file(INSTALL "${SOURCE}/deploy/grafana" DESTINATION "${prefix}/share/baton")
file(INSTALL "${SOURCE}/deploy/ctl/batonctl.bash" DESTINATION "${prefix}/share/bash-completion/completions" RENAME batonctl)
file(INSTALL "${SOURCE}/README.md" DESTINATION "${prefix}/share/doc/baton")

# A cluster file that is there is the operator's; with DESTDIR a packager's tree is made.
set(conf "$ENV{DESTDIR}${etc}/baton/cluster.conf")
if(NOT EXISTS "${conf}" OR NOT "$ENV{DESTDIR}" STREQUAL "")
  file(READ "${SOURCE}/deploy/cluster.conf" text)
  string(REPLACE "model = deploy/demo-model" "model = ${prefix}/share/baton/demo-model" text "${text}")
  string(REPLACE "bin = build/release/bin"
    "bin = ${prefix}/bin\nruntime_dir = ${run}\nlog_dir = ${logs}" text "${text}")
  string(REPLACE "Paths are relative to the source tree." "Paths are absolute here." text "${text}")
  string(REPLACE "`deploy/baton up`" "`baton up`" text "${text}")
  file(WRITE "${conf}" "${text}")
endif()

file(READ "${SOURCE}/deploy/systemd/baton.service.in" unit)
string(REPLACE "@BIN@" "${prefix}/bin" unit "${unit}")
string(REPLACE "@ETC@" "${etc}" unit "${unit}")
file(WRITE "${root}/lib/systemd/system/baton.service" "${unit}")
